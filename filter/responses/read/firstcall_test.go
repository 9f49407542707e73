package read

import "testing"

func TestShorten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		size int
		want string
	}{
		{"abcd", 4, "abcd"},
		{"abcdefgh", 4, "ab\n[4 bytes are left out here]\ngh"},
		{"éééé", 3, "\n[8 bytes are left out here]\n"},
		{"\x80\x80\x80\x80", 2, "\n[4 bytes are left out here]\n"},
		{"abc", 0, "\n[3 bytes are left out here]\n"},
		{"aé😀éa", 6, "aé\n[4 bytes are left out here]\néa"},
	} {
		if got := shorten(c.text, c.size); got != c.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", c.text, c.size, got, c.want)
		}
	}
}
