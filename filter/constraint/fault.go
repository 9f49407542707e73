package constraint

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// schemaFault is what is wrong with a part of a schema.
type schemaFault struct {
	path []string // the names and numbers that lead to the part
	err  error
}

func (f *schemaFault) Error() string { return f.err.Error() }

func (f *schemaFault) Unwrap() error { return f.err }

func faultAt(path []string, err error) error {
	var f *schemaFault
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &schemaFault{path, err}
}

// maxPath bounds a path, in bytes.
const maxPath = 200

// SchemaPath is where the fault is of which an error of [CheckSchema] tells, as a
// path to stand behind that of the schema: ".properties.name", "" for the schema
// itself.
func SchemaPath(err error) string {
	var f *schemaFault
	if !errors.As(err, &f) || len(f.path) == 0 {
		return ""
	}
	path := "." + strings.Join(f.path, ".")
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "") + "…"
	}
	return path
}

// namedTwice tells whether no object in a value has a name twice, of which
// readers of JSON take one or the other; else where the object is.
func namedTwice(v gjson.Result, path []string) (where []string, ok bool) {
	names := map[string]bool{}
	where, ok = path, true
	i := 0
	v.ForEach(func(k, member gjson.Result) bool {
		name := k.Str
		if v.IsArray() {
			name = strconv.Itoa(i)
		} else {
			if names[name] {
				ok = false
				return false
			}
			names[name] = true
		}
		i++
		if member.IsObject() || member.IsArray() {
			where, ok = namedTwice(member, append(path[:len(path):len(path)], name))
		}
		return ok
	})
	if ok {
		where = path
	}
	return where, ok
}
