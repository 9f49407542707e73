package jsontext_test

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

func TestValidTexts(t *testing.T) {
	t.Parallel()
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, c := range []struct {
		name, text    string
		valid, object bool
	}{
		{"an object", ` {"a":[1]} `, true, true},
		{"an array", `[{}]`, true, false},
		{"a string", `"{}"`, true, false},
		{"no JSON", `{"a":`, false, false},
		{"nothing", ``, false, false},
		{"deep", nested(jsontext.MaxDepth), true, false},
		{"too deep", nested(jsontext.MaxDepth + 1), false, false},
		{"deeper than any stack", strings.Repeat("[", 32<<20), false, false},
	} {
		if valid, object := jsontext.Valid(c.text), jsontext.IsObject(c.text); valid != c.valid || object != c.object {
			t.Errorf("%s: valid %v, an object %v", c.name, valid, object)
		}
	}
}
