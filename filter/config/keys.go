package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// The keys of the configuration file are the json tags of [Config]. What
// stands here reads them from the type, so that the file, the environment and
// flags know the same keys and refuse the same values.

// readYAML sets what v points to from YAML. Keys that are not written, or have no
// value, leave it as it is; a list is set as a whole. An error names every key at
// fault by its path, which begins with path.
func readYAML(text []byte, v any, path string) error {
	// An error if a key is repeated.
	tidy, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return explainYAML(text, err)
	}

	// A number stays as it is written: a float would lose digits of large ones.
	in := json.NewDecoder(bytes.NewReader(tidy))
	in.UseNumber()
	var tree any
	if err := in.Decode(&tree); err != nil {
		return explainYAML(text, err)
	}
	return errors.Join(assign(reflect.ValueOf(v).Elem(), tree, path)...)
}

// assign sets a part of the configuration from a part of the tree.
func assign(to reflect.Value, node any, path string) faults {
	// A key without a value keeps its default, as a commented one does.
	if node == nil { // the key has no value
		return nil
	}
	if d, ok := to.Addr().Interface().(*Duration); ok {
		return assignDuration(d, node, path)
	}

	switch to.Kind() {
	case reflect.Pointer: // nil: the key is not written
		to.Set(reflect.New(to.Type().Elem()))
		return assign(to.Elem(), node, path)
	case reflect.Struct:
		if keys, ok := node.(map[string]any); ok {
			return assignKeys(to, keys, path)
		}
		return misfit(path, "a mapping", node)
	case reflect.Map:
		if keys, ok := node.(map[string]any); ok {
			return assignMap(to, keys, path)
		}
		return misfit(path, "a mapping", node)
	case reflect.Slice:
		if list, ok := node.([]any); ok {
			return assignList(to, list, path)
		}
		return misfit(path, "a list", node)

	// What a kind below takes is exact: a number in quotes is a text.
	case reflect.Bool:
		value, ok := node.(bool)
		if !ok {
			return misfit(path, "true or false", node)
		}
		to.SetBool(value)
	case reflect.Int, reflect.Int64:
		return assignNumber(to, node, path)
	default: // a number would not always be written as it stands in the file
		value, ok := node.(string)
		if !ok {
			return misfit(path, "text in quotes", node)
		}
		to.SetString(value)
	}
	return nil
}

// assignNumber sets a whole number. One of bytes can have a unit.
func assignNumber(to reflect.Value, node any, path string) faults {
	want := "a whole number"
	number, _ := node.(json.Number)
	text, factor := number.String(), int64(1)
	if strings.HasSuffix(path, "bytes") {
		want = "a whole number of bytes, or one with KiB, MiB or GiB such as 32MiB"
		if size, ok := node.(string); ok {
			text, factor = sizeOf(size)
		}
	}

	value, err := strconv.ParseInt(text, 10, to.Type().Bits())
	if err != nil || value > math.MaxInt64/factor || value < math.MinInt64/factor || to.OverflowInt(value*factor) {
		return misfit(path, want, node)
	}
	to.SetInt(value * factor)
	return nil
}

// sizeOf splits a size such as 32MiB into its number, "" if there is none, and its unit.
func sizeOf(size string) (number string, unit int64) {
	for shift, name := range []string{"KiB", "MiB", "GiB"} {
		if number, ok := strings.CutSuffix(size, name); ok {
			return strings.TrimSpace(number), 1 << (10 * (shift + 1))
		}
	}
	// A number in quotes is a text, as it is for other keys.
	return "", 1
}

func assignKeys(to reflect.Value, keys map[string]any, path string) (errs faults) {
	// In order, so that the errors of a file are the same at each start.
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		field := fieldByKey(to, key)
		if !field.IsValid() {
			errs = append(errs, unknownKey(to.Type(), below(path, key), key))
			continue
		}
		errs = append(errs, assign(field, keys[key], below(path, key))...)
	}
	return errs
}

func assignMap(to reflect.Value, keys map[string]any, path string) (errs faults) {
	// A map is set as a whole, as a list is: what a file says is all that there is.
	to.Set(reflect.MakeMapWithSize(to.Type(), len(keys)))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value := reflect.New(to.Type().Elem()).Elem()
		errs = append(errs, assign(value, keys[key], below(path, key))...)
		to.SetMapIndex(reflect.ValueOf(key), value)
	}
	return errs
}

func assignList(to reflect.Value, list []any, path string) (errs faults) {
	to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
	for i, node := range list {
		errs = append(errs, assign(to.Index(i), node, fmt.Sprintf("%s[%d]", path, i))...)
	}
	return errs
}

func assignDuration(to *Duration, node any, path string) faults {
	if text, ok := node.(string); ok {
		if d, err := time.ParseDuration(text); err == nil {
			to.Duration = d
			return nil
		}
	}
	return misfit(path, "a number with its unit, such as 2s", node)
}

// misfit says that the value of a key is of the wrong kind. A text may be a secret
// that has come to the wrong place, so it is not shown.
func misfit(path, want string, node any) faults {
	found := "text"
	switch node := node.(type) {
	case map[string]any:
		found = "a mapping"
	case []any:
		found = "a list"
	case bool, json.Number:
		found = fmt.Sprint(node)
	}
	if path == "" {
		path = "the configuration"
	}
	return fault("%s: want %s, found %s", path, want, found)
}

// unknownKey is the error for a key that in does not have. path is where it stands.
func unknownKey(in reflect.Type, path, key string) error {
	var names []string
	for _, field := range reflect.VisibleFields(in) {
		if name := field.Tag.Get("json"); name != "" {
			names = append(names, name)
		}
	}
	return fmt.Errorf("unknown key %s%s; docs/configuration.md lists the keys", path, DidYouMean(key, names))
}

// below is the path of a key under path.
func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// settableKeys lists the paths of t that hold a value.
func settableKeys(t reflect.Type, path string) []string {
	keys := keysOf(t, path, nil)
	paths := make([]string, len(keys))
	for i := range keys {
		paths[i] = keys[i].path
	}
	return paths
}

// fieldByKey returns the field of v that key names, the zero Value if there is
// none.
func fieldByKey(v reflect.Value, key string) reflect.Value {
	if v.Kind() != reflect.Struct || key == "" {
		return reflect.Value{}
	}
	for _, field := range reflect.VisibleFields(v.Type()) {
		if field.Tag.Get("json") == key {
			return v.FieldByIndex(field.Index)
		}
	}
	return reflect.Value{}
}
