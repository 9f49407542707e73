package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A fake of the go command: it lists one package with one target, whose run prints what
// is in the file output and fails if there is anything.
const fakeGo = `#!/bin/sh
case "$*" in
"list ./...") echo example.com/p ;;
list*) echo "$FAKE" ;;
test*) cat "$FAKE/output"; [ ! -s "$FAKE/output" ] ;;
esac
`

// TestFuzzRun shows what tools/fuzz/run.sh forgives: the end of the time, which Go's
// engine reports as an error before Go 1.27, and nothing else.
func TestFuzzRun(t *testing.T) {
	const begun = "fuzz: elapsed: 0s, gathering baseline coverage: 1/1 completed, now fuzzing with 2 workers\n"
	const late = "--- FAIL: FuzzIt (20.10s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
	for name, c := range map[string]struct {
		output, target string
		fails          bool
	}{
		"a clean run":                      {"", "FuzzIt", false},
		"the engine ends late":             {begun + late, "FuzzIt", false},
		"late, and a failing input":        {begun + "--- FAIL: FuzzIt (1s)\n    --- FAIL: FuzzIt (0.00s)\n        it_test.go:7: wrong\n    Failing input written to testdata\n" + late, "FuzzIt", true},
		"late, and a worker is hung":       {begun + "fuzzing process hung or terminated unexpectedly\n" + late, "FuzzIt", true},
		"late, and a panic":                {begun + "panic: runtime error\n" + late, "FuzzIt", true},
		"late, and a failing seed":         {begun + "    --- FAIL: FuzzIt/seed#0 (0.00s)\n" + late, "FuzzIt", true},
		"late, before any new input":       {"fuzz: elapsed: 0s, gathering baseline coverage: 0/1 completed\n" + late, "FuzzIt", true},
		"another failure":                  {begun + "FAIL\nexit status 2\n", "FuzzIt", true},
		"a target that there is not":       {"", "FuzzOther", true},
		"a build that does not come to it": {"FAIL example.com/p [build failed]\n", "FuzzIt", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"go": fakeGo, "output": c.output, "it_test.go": "package p\n\nfunc FuzzIt(f *testing.F) {}\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil { //nolint:gosec // go is a program
					t.Fatal(err)
				}
			}
			run := exec.Command("../../tools/fuzz/run.sh", "1s", c.target)
			run.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "FAKE="+dir)
			out, err := run.CombinedOutput()
			if failed := err != nil; failed != c.fails {
				t.Errorf("fails: %t\n%s", failed, out)
			}
			if c.target == "FuzzIt" && !strings.Contains(string(out), "== example.com/p FuzzIt") {
				t.Errorf("the target was not run:\n%s", out)
			}
		})
	}
}
