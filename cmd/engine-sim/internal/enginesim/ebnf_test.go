package enginesim

import (
	"slices"
	"testing"
)

// TestEBNF shows which texts an EBNF grammar accepts, and a sample of it.
func TestEBNF(t *testing.T) {
	g, err := readEBNF("root ::= \"a\\x2d\" r0{1,2} (\"x\" | r1)*\nr0 ::= [0-9\\ud7ff]\nr1 ::= \"(\" r1? \")\"\n")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"a-1": true, "a-12x(())": true, "a-\ud7ff": true, "a-": false, "a-123": false, "a-1(()": false} {
		if got := slices.Contains(g.ends(text, 0), len(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if text, ok := g.sample(); text != "a-0" || !ok {
		t.Errorf("the sample is %q, %v", text, ok)
	}
	for _, bad := range []string{"", "root = \"a\"", "root ::= (\"a\"", "root ::= Token(1)", "other ::= \"a\""} {
		if _, err := readEBNF(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
