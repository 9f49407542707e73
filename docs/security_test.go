package docs

import (
	"os"
	"strings"
	"testing"
)

// TestThreatModelNamesItsTests checks that every row of the threat model in SECURITY.md
// names a test, and that the file of its link has that test.
func TestThreatModelNamesItsTests(t *testing.T) {
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, faults := testedRows(strings.ReplaceAll(string(text), "](", "](../"))
	for _, f := range faults {
		t.Error("SECURITY.md:" + f)
	}
	if rows < 13 {
		t.Errorf("only %d rows were found", rows)
	}
}
