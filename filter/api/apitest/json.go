package apitest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tidwall/sjson"
)

// Quote returns a JSON string.
func Quote(s string) string {
	b, _ := json.Marshal(s) // has no error for strings
	return string(b)
}

// With sets members, each a path and a value, of a JSON object. A nil deletes one.
func With(t testing.TB, object string, members ...any) string {
	t.Helper()
	var err error
	for i := 0; i < len(members) && err == nil; i += 2 {
		path := members[i].(string)
		if members[i+1] == nil {
			object, err = sjson.Delete(object, path)
		} else {
			object, err = sjson.Set(object, path, members[i+1])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// Indent returns a JSON text with line breaks.
func Indent(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	return b.String() + "\n"
}
