package item

import (
	"testing"
)

func TestShownArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"white space stays", "{\n  \"q\": \"\\u0418\\/\"\n}", "{\n  \"q\": \"И/\"\n}"},
		{"text that spells a control token stays text", `{"q":"\u003c|call|\u003e"}`, `{"q":"<|call|>"}`},
		{"what is no JSON stays", `{"q":"\u0418`, `{"q":"\u0418`},
		{"a text stays", `echo \u0418`, `echo \u0418`},
		{"nothing", "", "{}"},
		{"white space", " \n\t", "{}"},
		{"null", "null ", "{}"},
		{"an empty text", ` ""`, "{}"},
		{"a number", "0", "0"},
		{"another word", "nulls", "nulls"},
	} {
		if got := ShownArguments(&Item{Kind: Call, Name: "f", Text: c.text}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}

	for _, code := range []string{`print("\u0418")`, `"\u0418"`, "", "null"} {
		if got := ShownArguments(&Item{Kind: Call, Namespace: "python", Builtin: true, Text: code}); got != code {
			t.Errorf("the code %q became %q", code, got)
		}
	}
}
