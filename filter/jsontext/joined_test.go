package jsontext_test

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

func TestTextPartsAreJoinedByNewLines(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"one part is unchanged", []string{"one"}, "one"},
		{"two words", []string{"one", "two"}, "one\ntwo"},
		{"white space at the end of a part", []string{"one\n", "two "}, "one\ntwo "},
		{"white space at the beginning of a part", []string{"one", " two"}, "one two"},
		{"wide white space counts", []string{"one\u3000", "two"}, "one\u3000two"},
		{"empty parts are no lines", []string{"", "one", "", "two", ""}, "one\ntwo"},
		{"three parts", []string{"<a>", "é", "ü"}, "<a>\né\nü"},
		{"no parts", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var j jsontext.Joined
			for _, part := range c.parts {
				j.AddPart(part)
			}
			if got := j.String(); got != c.want {
				t.Errorf("joined to %q, want %q", got, c.want)
			}
		})
	}
}
