package constraint

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// schemaError is an error in a part of a schema.
type schemaError struct {
	// The names and indexes that lead to the part.
	path []string
	err  error
}

func (f *schemaError) Error() string { return f.err.Error() }

func (f *schemaError) Unwrap() error { return f.err }

func errorAt(path []string, err error) error {
	var f *schemaError
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &schemaError{path, err}
}

// maxPath bounds a path, in bytes.
const maxPath = 200

// SchemaPath returns where in the schema an error of [CheckSchema] is, as a path to
// append to the schema's own: ".properties.name", "" for the schema itself.
func SchemaPath(err error) string {
	var f *schemaError
	if !errors.As(err, &f) || len(f.path) == 0 {
		return ""
	}
	path := "." + strings.Join(f.path, ".")
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "") + "…"
	}
	return path
}

// duplicateNames returns the path of an object in which a name occurs twice; ok
// reports that there is none. Readers of JSON take the one or the other member.
func duplicateNames(v gjson.Result, path []string) (where []string, ok bool) {
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

		// The path is cut to its length, so that siblings do not write into each other's.
		if member.IsObject() || member.IsArray() {
			where, ok = duplicateNames(member, append(path[:len(path):len(path)], name))
		}
		return ok
	})

	if ok {
		where = path
	}
	return where, ok
}
