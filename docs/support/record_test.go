package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// project is a git repository with a program and a page.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	edit(t, dir, "main.go", "package main\n")
	edit(t, dir, "page.md", "# Page\n")
	edit(t, dir, ".gitignore", "/bin/\n")

	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "x"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	return dir
}

func edit(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The record of a run has its exit status, and says whether the commit is what ran.
func TestRecord(t *testing.T) {
	for name, c := range map[string]struct {
		before func(dir string)
		script string
		status int
		result string
		dirty  bool
	}{
		"passed":                      {nil, "echo", 0, passed, false},
		"failed":                      {nil, "exit 3", 3, failed, false},
		"killed":                      {nil, "kill -KILL $$", 1, failed, false},
		"a page was changed":          {func(dir string) { edit(t, dir, "page.md", "# Other\n") }, "echo", 0, passed, false},
		"a program was changed":       {func(dir string) { edit(t, dir, "main.go", "package x\n") }, "echo", 0, passed, true},
		"a new program":               {func(dir string) { edit(t, dir, "new.go", "package x\n") }, "echo", 0, passed, true},
		"a program changed meanwhile": {nil, "echo >>main.go", 0, passed, true},
		"what git ignores":            {nil, "echo >>bin/file", 0, passed, false},
		"git does not work":           {func(dir string) { _ = os.RemoveAll(filepath.Join(dir, ".git")) }, "echo", 0, passed, true},
		"all tests were skipped":      {nil, `echo "--- SKIP: TestImage (0.00s)"`, 0, skipped, false},
		"a test was skipped":          {nil, `printf -- "--- SKIP: TestA (0s)\n--- PASS: TestB (0s)\n"`, 0, inPart, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t)
			// A temporary folder in somebody's repository would be a part of that.
			t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
			if c.before != nil {
				c.before(dir)
			}

			cmd := []string{"sh", "-c", "cd '" + dir + "'; " + c.script}
			status, err := findTarget("test-dist").record(t.Context(), dir, nil, cmd, io.Discard, io.Discard)
			if err != nil || status != c.status {
				t.Errorf("status %d, %v, want %d", status, err, c.status)
			}
			runs, err := readRuns(runsDir(dir))
			if err != nil || len(runs) != 1 {
				t.Fatalf("%d records, %v", len(runs), err)
			}
			if r := runs[0]; r.Result != c.result || r.Dirty != c.dirty || r.Command != "make test-dist" || r.Reason != "" {
				t.Errorf("%+v, want %s, dirty %v", r, c.result, c.dirty)
			}
		})
	}
}

// A run that is killed with its parent leaves a record that says so, not the one before.
func TestRecordOfNoEnd(t *testing.T) {
	dir := project(t)
	old := &Run{Target: "test-dist", Result: passed}
	if err := old.save(runsDir(dir)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := []string{"cat", filepath.Join(runsDir(dir), "test-dist.json")}
	if _, err := findTarget("test-dist").record(t.Context(), dir, nil, cmd, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"result": "failed",`) || !strings.Contains(out.String(), "it did not end") {
		t.Errorf("while it runs the record is %s", &out)
	}
}

// Runs that say nothing about the whole target leave no record.
func TestUnfit(t *testing.T) {
	for name, c := range map[string]struct {
		target, variable, value string
		unfit                   bool
	}{
		"nothing is set":      {"test", "", "", false},
		"one package":         {"test", "PKG", "./docs", true},
		"all packages":        {"test", "PKG", "./...", false},
		"of another target":   {"test-dist", "PKG", "./docs", false},
		"one client":          {"test-clients", "CLIENTS", "pi", true},
		"one attack":          {"attack", "ATTACK", "x", true},
		"make -n":             {"test", "MAKEFLAGS", "n", true},
		"make -kn with value": {"test", "MAKEFLAGS", "kn -- PKG=./...", true},
		"make -i":             {"test", "MAKEFLAGS", "i", true},
		"make -k":             {"test", "MAKEFLAGS", "k", false},
		"make -j4":            {"test", "MAKEFLAGS", " -j4 --jobserver-auth=3,4", false},
		"a variable":          {"test", "MAKEFLAGS", " -- PKG=./...", false},
		"only a variable":     {"test", "MAKEFLAGS", "VERSION=1.2.3-nightly", false},
	} {
		getenv := func(name string) string {
			if name == c.variable {
				return c.value
			}
			return ""
		}
		if why := findTarget(c.target).unfit(getenv); (why != "") != c.unfit {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestCommand(t *testing.T) {
	set := map[string]string{"SOAKTIME": "5m", "STORE": "postgres://user:secret@db/x", "PKG": "x"}
	got := findTarget("soak").command(func(name string) string { return set[name] })
	if want := "make soak SOAKTIME=5m STORE=postgres:…"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The output is read in any pieces, with another stream between them.
func TestOutcome(t *testing.T) {
	const text = `go vet ./...
ok  	example.com/a	1.2s
ok  	example.com/b	(cached)
?   	example.com/c	[no test files]
Starting Redis server v=7.0.15 on port 4711
Starting postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1) on port 4712
PostgreSQL on a full disk is not tested: that needs root
The file /tmp/x/y is not tested
--- PASS: TestClients (3.20s)
    --- PASS: TestClients/pi (1.00s)
    --- FAIL: TestClients/dspy (1.00s)
--- SKIP: TestImage (0.00s)
--- FAIL: TestOther (0.00s)
== Envoy 1.40.0
ok  	example.com/a	1.2s
== Envoy 1.39.3
FAIL	example.com/a	1.2s
FAIL
`
	want := Outcome{
		Packages: 3, Cached: 1, Tests: 1, Failed: []string{"TestClients/dspy", "TestOther"}, Skipped: []string{"TestImage"},
		Parts: map[string]string{
			"TestClients/pi": passed, "TestClients/dspy": failed, "Envoy 1.40.0": passed, "Envoy 1.39.3": failed,
		},
		Notes: []string{"PostgreSQL on a full disk is not tested: that needs root", "The file PATH is not tested"},
	}
	parts := map[string]bool{"TestClients/pi": true, "TestClients/dspy": true, "Envoy 1.40.0": true, "Envoy 1.39.3": true}

	for _, size := range []int{1, 7, len(text)} {
		r := newReader(parts)
		stdout, stderr := &stream{reader: r}, &stream{reader: r}
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			_, _ = stdout.Write([]byte(rest[:min(size, len(rest))]))
			_, _ = stderr.Write([]byte("go: downloading a module\ngo: "))
		}
		if diff := cmp.Diff(want, r.end(false)); diff != "" {
			t.Errorf("in pieces of %d (-want +got):\n%s", size, diff)
		}
		if r.versions["Redis"] != "7.0.15" || r.versions["PostgreSQL"] != "15.14" {
			t.Errorf("versions %v", r.versions)
		}
	}
}

// The section in which a run was stopped has no result.
func TestStoppedSection(t *testing.T) {
	for succeeded, want := range map[bool]map[string]string{
		true:  {"Envoy 1.40.0": passed, "Envoy 1.39.3": passed},
		false: {"Envoy 1.40.0": passed},
	} {
		r := newReader(map[string]bool{"Envoy 1.40.0": true, "Envoy 1.39.3": true})
		_, _ = (&stream{reader: r}).Write([]byte("== Envoy 1.40.0\nok  \ta\t1s\n== Envoy 1.39.3\nok  \ta\t1s\n"))
		if diff := cmp.Diff(want, r.end(succeeded).Parts); diff != "" {
			t.Errorf("succeeded %v (-want +got):\n%s", succeeded, diff)
		}
	}
}
