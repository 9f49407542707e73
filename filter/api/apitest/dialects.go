package apitest

import (
	"path/filepath"
	"strings"
	"testing"
)

// KnowsDialects shows that each field of other servers for an API, as testdata/dialects lists
// them by hand, has a row. A line has the name of the API and fields.
func (o Objects) KnowsDialects(t *testing.T, name string) {
	t.Helper()
	files, err := filepath.Glob("../api/apitest/testdata/dialects/*.txt")
	// Without any list the test would pass by finding nothing.
	if err != nil || len(files) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	for _, file := range files {
		for line := range strings.Lines(ReadFile(t, file)) {
			words := strings.Fields(line)
			if words[0] != name {
				continue
			}
			for _, field := range words[1:] {
				if !o.has(field) {
					t.Errorf("%s has %s, which no table has", filepath.Base(file), field)
				}
			}
		}
	}
}

// has reports whether a table has a field, of which the path is known.
func (o Objects) has(path string) bool {
	if _, ok := o[""][path]; ok { // its name may have dots
		return true
	}
	dot := strings.LastIndexByte(path, '.')
	if dot < 0 {
		return false
	}
	_, ok := o[path[:dot]][path[dot+1:]]
	return ok
}
