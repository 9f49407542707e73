package prompt

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestConcise(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 10, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{" \n\ta \u00a0\r\n b\u2003", 10, "a b"},
		{"a b", 2, "a"},
		{"a bc", 3, "a b"},
		{"née", 2, "n"},
		{"née", 3, "né"},
		{"a🙂b", 4, "a"},
		{"a🙂b", 5, "a🙂"},
		{"a\xff\xfeb", 4, "a\ufffd"},
		{strings.Repeat(" ", 1000) + "x", 1, "x"},
	} {
		got := concise(tt.text, tt.n)
		if got != tt.want || len(got) > tt.n || !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes: %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}
