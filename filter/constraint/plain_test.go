package constraint

import "testing"

func TestIsPlain(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{
		`[a-z]+-\d{2}`: true, `^(yes|no)$`: true, ``: true, `[0-9A-F]*é`: true, `(?i)select [a-z, ]+`: true,
		`.`: false, `a.*b`: false, `[^a]`: false, `\s`: false, `"`: false, `\\`: false, `(a|[!-~])`: false, "a\n": false, `[`: false,
	} {
		if got := IsPlain(pattern); got != want {
			t.Errorf("%s: %t", pattern, got)
		}
	}
}
