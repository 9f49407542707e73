package filter

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The keys of the configuration file are the json tags of [Config]. What
// stands here reads them from the type, so that the file, the environment and
// flags know the same keys.

// unknownKeys lists the paths in tree, as YAML was read, that t has no field
// for.
func unknownKeys(t reflect.Type, tree any, path string) []string {
	var unknown []string
	switch node := tree.(type) {
	case map[string]any:
		if t.Kind() != reflect.Struct || t == reflect.TypeFor[Duration]() {
			return nil // a value of the wrong type: decoding says so
		}
		for name, child := range node {
			field, ok := typeByKey(t, name)
			if !ok {
				unknown = append(unknown, path+name)
				continue
			}
			unknown = append(unknown, unknownKeys(field, child, path+name+".")...)
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, child := range node {
			prefix := fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), i)
			unknown = append(unknown, unknownKeys(t.Elem(), child, prefix)...)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// settableKeys lists the paths of t that hold a value: structs are descended
// into, lists are values.
func settableKeys(t reflect.Type, path string) []string {
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		name := field.Tag.Get("json")
		if name == "" {
			continue
		}
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[Duration]() {
			keys = append(keys, settableKeys(field.Type, path+name+".")...)
			continue
		}
		keys = append(keys, path+name)
	}
	return keys
}

func typeByKey(t reflect.Type, key string) (reflect.Type, bool) {
	for _, field := range reflect.VisibleFields(t) {
		if field.Tag.Get("json") == key {
			return field.Type, true
		}
	}
	return nil, false
}

// fieldByKey gives the field of v that key names, the zero Value if there is
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

// decodeStrict reads YAML into v and says errors in the file's words.
func decodeStrict(text []byte, v any) error {
	err := yaml.UnmarshalStrict(text, v)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		where := mismatch.Field
		if where == "" {
			where = "value"
		}
		return fmt.Errorf("%s: want %s, found %s", where, yamlType(mismatch.Type), mismatch.Value)
	}
	return err
}

func yamlType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	}
	return "text"
}
