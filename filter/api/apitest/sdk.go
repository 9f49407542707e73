package apitest

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Knows shows that each field of an SDK's type for requests has a row, and each object a
// table. opaque are objects whose members the API does not know one by one, and fields
// without a row, by their paths, with the reason. *.caller is of that name in any object.
func (o Objects) Knows(t *testing.T, request any, opaque map[string]string) {
	t.Helper()
	w := sdkWalk{objects: o, opaque: opaque, missing: map[string]bool{}, used: map[string]bool{}}
	w.object(reflect.TypeOf(request), "", "")
	for _, path := range slices.Sorted(maps.Keys(w.missing)) {
		t.Errorf("%T has %s, which no table has. Read it, refuse it, or say why the answer cannot differ "+
			"without it.", request, path)
	}
	for path := range opaque {
		if !w.used[path] {
			t.Errorf("%T has nothing at %s any more", request, path)
		}
	}
}

// sdkWalk goes through the types of an SDK that Stainless has generated.
type sdkWalk struct {
	objects Objects
	opaque  map[string]string
	missing map[string]bool
	used    map[string]bool
	stack   []reflect.Type
}

// object reads a type at a path. typed is the same path, with the types that objects on it
// say they are of, such as input[message].content.
func (w *sdkWalk) object(t reflect.Type, path, typed string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	// Types such as schemas contain themselves: the second time says nothing new.
	if t.Kind() != reflect.Struct || isValue(t) || slices.Contains(w.stack, t) {
		return
	}
	w.stack = append(w.stack, t)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()

	own := typeOf(t)
	// The tables name an object as exactly as it needs: the path with the most types comes first.
	candidates := []string{typed + own, path + own, typed, path}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous || name == "-" || !f.IsExported():
		case strings.Contains(f.Tag.Get("json"), "inline"): // a variant of a union
			w.object(f.Type, path, typed)
		case name != "":
			w.field(f.Type, path, candidates, name)
		}
	}
}

// field reads a field of an object, whose table has one of the candidates as its path.
func (w *sdkWalk) field(t reflect.Type, path string, candidates []string, name string) {
	at := candidates[0]
	for _, c := range candidates {
		if _, ok := w.objects[c]; ok {
			at = c
			break
		}
	}

	// An object without a table must be listed as opaque, with a reason.
	if w.objects[at] == nil {
		anywhere := "*" + path[max(strings.LastIndexByte(path, '.'), 0):]
		for _, c := range []string{candidates[0], candidates[1], anywhere} {
			if w.opaque[c] != "" {
				w.used[c] = true
				return
			}
		}
	}

	full := strings.TrimPrefix(at+"."+name, ".")
	// Only mapped fields are read further: what is in a refused or ignored one does not matter.
	switch h, known := w.objects[at][name]; {
	case !known && w.opaque[full] != "":
		w.used[full] = true
	case !known:
		w.missing[full] = true
	case h.State == "mapped":
		w.object(t, strings.TrimPrefix(path+"."+name, "."), full)
	}
}

// isValue reports whether a struct of an SDK is one value, such as param.Opt.
func isValue(t reflect.Type) bool {
	return strings.HasSuffix(t.PkgPath(), "/packages/param") || t.PkgPath() == "time"
}

// typeOf is the name that an object gives as its type, in brackets; "" if it has none.
func typeOf(t reflect.Type) string {
	if f, ok := t.FieldByName("Type"); ok && f.Tag.Get("default") != "" {
		return "[" + f.Tag.Get("default") + "]"
	}
	return ""
}

// KnowsPython is [Objects.Knows] for a type of openai-python, such as module:Class, as far as
// the objects in it have no type of their own. It is skipped without make venv.
func (o Objects) KnowsPython(t *testing.T, class string, opaque map[string]string) {
	t.Helper()
	// The test of an API runs in its package's folder, two levels below the root.
	python, err := filepath.Abs("../../.venv/bin/python")
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		t.Skip("make venv installs openai-python")
	}

	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python, "../../e2e/python/request_fields.py", class)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; if a module is missing, make venv installs it:\n%s", err, &said)
	}

	for path := range strings.FieldsSeq(string(out)) {
		parent, name := "", path
		if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
			parent, name = path[:dot], path[dot+1:]
		}
		if table, ok := o[parent]; ok && table[name].State == "" && opaque[path] == "" && opaque[parent] == "" {
			t.Errorf("%s has %s, which no table has. Read it, refuse it, or say why the answer cannot differ "+
				"without it.", class, path)
		}
	}
}
