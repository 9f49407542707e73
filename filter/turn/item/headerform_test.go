package item

import (
	"strings"
	"testing"
)

// TestFormOf lists ids without a mark.
func TestFormOf(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0123456789abcdef", 2)
	for f := range formCount {
		if got := FormOf(f.WithMark("call_" + digits)); got != f {
			t.Errorf("form %d became %d", f, got)
		}
		if got := f.WithMark("call_1"); got != "call_1" {
			t.Errorf("form %d marks %s", f, got)
		}
	}
	for _, id := range []string{
		"", "h", "call_", "call_h", "call_1h", digits + "h", "call_" + digits, "call_" + digits + "0", "call_" + digits + "g", "call_" + digits + "o",
		"call_" + digits + "\xff", "call_" + digits + "hh", "call_" + digits[1:] + "h", "call_" + strings.ToUpper(digits) + "h", "toolu_" + digits + "h",
	} {
		if f := FormOf(id); f != 0 {
			t.Errorf("%q has the form %d", id, f)
		}
	}
}
