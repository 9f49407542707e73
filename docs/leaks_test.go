package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var goleakMain = regexp.MustCompile(`goleak\.VerifyTestMain\(m`)

// TestLeaksAreFound checks that the tests of every package of the program fail if a
// goroutine outlives them.
func TestLeaksAreFound(t *testing.T) {
	checked := 0
	for path := range packages(t) {
		files, err := filepath.Glob(filepath.Join(root, path, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if top := regexp.MustCompile(`^(filter|harmony|cmd|envoy)(/|$)`); len(files) == 0 || !top.MatchString(path) {
			continue
		}
		checked++
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || goleakMain.Match(text)
		}
		if !found {
			t.Errorf("%s: no TestMain calls goleak.VerifyTestMain", path)
		}
	}
	if checked < 25 {
		t.Errorf("only %d packages were checked", checked)
	}
}
