package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func readMatrix(t *testing.T) *Support {
	t.Helper()
	s, err := readSupport(root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// docs/support.md is what docs/support.json gives.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(pageFile(root))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), readMatrix(t).page()); diff != "" {
		t.Errorf("docs/support.md is not what docs/support.json gives: run make support (-has +gives):\n%s", diff)
	}
}

// The versions of docs/support.json are those of the tree, and its results are those of its runs.
func TestMatrix(t *testing.T) {
	has := readMatrix(t)
	want, err := components(root)
	if err != nil {
		t.Fatal(err)
	}
	s := &Support{Filter: has.Filter, Components: want}
	if s.Releases, err = readReleases(root); err != nil {
		t.Fatal(err)
	}

	for _, target := range targets {
		var runs []Run
		help := ""
		for _, of := range has.Targets {
			if of.Target != target.name {
				continue
			}
			// A sentence of the Makefile is no fact about a run: a change of it may wait for the next make support.
			help = of.Help
			if of.Run != nil {
				runs = append(runs, *of.Run)
			}
		}
		s.Targets = append(s.Targets, resultOf(target.name, help, runs, has.Filter.Code))
	}
	s.Uncovered = uncovered
	s.judge()

	if diff := cmp.Diff(has, s); diff != "" {
		t.Errorf("docs/support.json is old: run make support (-has +tree):\n%s", diff)
	}
}

// The targets are those that the Makefile records, and "make help" has a sentence about each.
func TestTargets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nRECORDED := ")
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")

	names := make([]string, 0, len(targets))
	for _, target := range targets {
		names = append(names, target.name)
	}
	if diff := cmp.Diff(strings.Fields(list), names); diff != "" {
		t.Errorf("RECORDED of the Makefile is not the list of targets.go (-Makefile +targets.go):\n%s", diff)
	}

	help, err := readHelp(root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := components(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if help[name] == "" {
			t.Errorf("the Makefile has no target %s with a sentence behind ##", name)
		}
	}
	for _, c := range all {
		for _, check := range c.Checks {
			if !slices.Contains(names, check.Target) {
				t.Errorf("%s %s: there is no target %q", c.Name, c.Version, check.Target)
			}
		}
	}
	if len(all) < 50 {
		t.Errorf("only %d components were found", len(all))
	}
}

// A result counts for its own code alone.
func TestResultOf(t *testing.T) {
	now := Code{Commit: "c2", Code: "code2"}
	run := func(date, code, result string, dirty bool) Run {
		return Run{Target: "test", Date: date + "T10:00:00Z", Code: Code{"c", code, dirty}, Result: result}
	}
	for name, c := range map[string]struct {
		runs   []Run
		code   Code
		result string
		before string
	}{
		"none":                       {nil, now, notRun, ""},
		"of another target":          {[]Run{{Target: "race", Code: now, Result: passed}}, now, notRun, ""},
		"of this code":               {[]Run{run("2026-11-26", "code2", passed, false)}, now, passed, ""},
		"failed":                     {[]Run{run("2026-11-26", "code2", failed, false)}, now, failed, ""},
		"of other code":              {[]Run{run("2026-11-25", "code1", passed, false)}, now, notRun, "; passed 2026-11-25, with other code"},
		"in a changed tree":          {[]Run{run("2026-11-26", "code2", passed, true)}, now, notRun, "; passed 2026-11-26, with a changed tree"},
		"the tree is changed now":    {[]Run{run("2026-11-26", "code2", passed, false)}, Code{"c2", "code2", true}, notRun, "; passed 2026-11-26, with other code"},
		"the latest of two":          {[]Run{run("2026-11-26", "code2", failed, false), run("2026-11-25", "code2", passed, false)}, now, failed, ""},
		"the latest of two, turned":  {[]Run{run("2026-11-25", "code2", passed, false), run("2026-11-26", "code2", failed, false)}, now, failed, ""},
		"this code before later":     {[]Run{run("2026-11-26", "code1", failed, false), run("2026-11-25", "code2", passed, false)}, now, passed, ""},
		"this code before later, 2":  {[]Run{run("2026-11-25", "code2", passed, false), run("2026-11-26", "code1", failed, false)}, now, passed, ""},
		"the latest of two old ones": {[]Run{run("2026-11-24", "code0", passed, false), run("2026-11-25", "code1", failed, false)}, now, notRun, "; failed 2026-11-25, with other code"},
	} {
		got := resultOf("test", "", c.runs, c.code)
		if got.Result != c.result || got.before() != c.before {
			t.Errorf("%s: %q%q, want %q%q", name, got.Result, got.before(), c.result, c.before)
		}
	}
}

// A component has the result of its own test, if there is one, and none of a run that had another version.
func TestJudge(t *testing.T) {
	run := Run{
		Result: passed, Versions: map[string]string{"Envoy": "1.40.0", "Redis": "7.0.15"},
		Outcome: Outcome{Parts: map[string]string{"TestClients/a": failed}},
	}
	for name, c := range map[string]struct {
		component Component
		test      string
		want      string
	}{
		"that version":              {Component{Name: "Envoy", Version: "1.40.0", Source: "f"}, "", passed},
		"another version":           {Component{Name: "Envoy", Version: "1.39.3", Source: "f"}, "", notRun},
		"of the machine":            {Component{Name: "Redis"}, "", passed},
		"not on the machine":        {Component{Name: "PostgreSQL"}, "", notRun},
		"its own test":              {Component{Name: "a", Version: "1", Source: "f"}, "TestClients/a", failed},
		"its test was not executed": {Component{Name: "b", Version: "1", Source: "f"}, "TestClients/b", notRun},
		"what the tree has alone":   {Component{Name: "engine-sim", Source: "cmd/engine-sim"}, "", passed},
	} {
		c.component.Checks = []Check{{Target: "test", Test: c.test}}
		s := &Support{Targets: []Result{{Target: "test", Result: passed, Run: &run}}, Components: []Component{c.component}}
		s.judge()
		if got := s.Components[0].Checks[0].Result; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}

		s.Targets[0].Result = notRun
		s.judge()
		if got := s.Components[0].Checks[0].Result; got != notRun {
			t.Errorf("%s: %s without a run of this code", name, got)
		}
	}
}

// The end of a minor follows from the day of the next one.
func TestReleases(t *testing.T) {
	dir := t.TempDir()
	text := "# Changelog\n\n## Unreleased\n\n## 0.10.0 - 2027-04-30\n\n## 0.9.1 - 2027-02-01\n\n## 0.9.0 - 2027-01-31\n"
	if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readReleases(dir)
	want := []Release{{"0.10", "2027-04-30", "0.10.0", ""}, {"0.9", "2027-01-31", "0.9.1", "2027-07-30"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}

	page := (&Support{Releases: got}).page()
	for _, row := range []string{"| 0.10 | 2027-04-30 | 0.10.0 | – |\n", "| 0.9 | 2027-01-31 | 0.9.1 | 2027-07-30 |\n"} {
		if !strings.Contains(page, row) {
			t.Errorf("the page has no row %q", row)
		}
	}
}
