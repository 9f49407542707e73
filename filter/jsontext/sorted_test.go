package jsontext

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestAppendSorted(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"members", ` { "b" : 1 , "a" : { "d" : [ ] , "c" : null } } `, `{"a":{"c":null,"d":[]},"b":1}`},
		{"elements stay in their order", `[3,{"b":1,"a":2},1]`, `[3,{"a":2,"b":1},1]`},
		{"members of one name stay in their order", `{"b":0,"a":1,"a":2}`, `{"a":1,"a":2,"b":0}`},
		{"an escaped name", `{"b":1,"\u0061":2}`, `{"\u0061":2,"b":1}`},
		{"texts and numbers stay as they are", `{"a":" { \"b\" : 1e2 } ","c":1.50}`, `{"a":" { \"b\" : 1e2 } ","c":1.50}`},
		{"no object", ` true `, `true`},
		{"nothing", ``, ``},
		{"empty", `{}`, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(AppendSorted(nil, c.raw)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// FuzzSorted requires that a sorted value is the same value, and that it is sorted.
func FuzzSorted(f *testing.F) {
	f.Add([]byte(`{"b":[{"d":"\u00e9","c":1e3}],"a":null}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		root, err := Parse(p)
		if err != nil || Depth(p) > 64 {
			return
		}
		sorted := AppendSorted(nil, root.Raw)
		if again := AppendSorted(nil, string(sorted)); string(again) != string(sorted) {
			t.Errorf("%s is not sorted: %s", sorted, again)
		}
		var was, is any
		if json.Unmarshal([]byte(root.Raw), &was) != nil {
			return
		}
		if err := json.Unmarshal(sorted, &is); err != nil || !reflect.DeepEqual(was, is) {
			t.Errorf("%s has become %s: %v", root.Raw, sorted, err)
		}
	})
}
