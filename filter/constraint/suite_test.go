package constraint

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSuite passes JSON Schema's own test suite, of which a module that the program is built
// with brings a copy. Schemas with identifiers, anchors and references to elsewhere are not
// read.
func TestSuite(t *testing.T) {
	t.Parallel()
	dir, err := osexec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for draft, least := range map[string]int{"draft2020-12": 950, "draft7": 820} {
		files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "jsonschema", "testdata", draft, "*.json"))
		tests := 0
		for _, file := range files {
			tests += passSuite(t, file, draft == "draft7")
		}
		if tests < least {
			t.Errorf("%s: only %d tests were found and could be read", draft, tests)
		}
	}
}

// passSuite makes the tests of a file, and returns how many there were.
func passSuite(t *testing.T, file string, draft7 bool) (tests int) {
	t.Helper()
	text, err := os.ReadFile(file)
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}

	if err != nil || json.Unmarshal(text, &groups) != nil {
		t.Fatalf("%s cannot be read: %v", file, err)
	}

	for _, group := range groups {
		v, err := NewValidator(newAccount(), group.Schema, nil)
		if err != nil {
			continue
		}

		v.draft7 = draft7
		for _, test := range group.Tests {
			tests++
			if got, err := v.Accepts(newAccount(), test.Data); err != nil || got != test.Valid {
				t.Errorf("%s: %s: %s: %t, %v", filepath.Base(file), group.Description, test.Description, got, err)
			}
		}
	}

	return tests
}
