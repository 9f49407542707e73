package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Support is docs/support.json.
type Support struct {
	// Filter is the code that the results are for.
	Filter Filter `json:"filter"`
	// Releases are the minors, the newest first, with the day on which the support of each ends.
	Releases []Release `json:"releases"`

	Targets    []Result    `json:"targets"`
	Components []Component `json:"components"`
	// Uncovered is what no target does.
	Uncovered []string `json:"uncovered"`
}

// Filter is this program.
type Filter struct {
	Code
	// Date is that of the commit.
	Date string `json:"date"`
}

// Result is a target with what came of it.
type Result struct {
	Target string `json:"target"`
	// Help is its sentence in "make help".
	Help string `json:"help"`

	// Result is that of Run, if that is of this code; otherwise "not run".
	Result string `json:"result"`
	// Run is the last run, also of other code; nil if there was none.
	Run *Run `json:"run"`
}

// uncovered is what no target does. A change that adds such a target removes its line.
var uncovered = []string{
	"a GPU, and a trained gpt-oss model: the real engines have tiny models with random weights, on a CPU",
	"TensorRT-LLM: its wire format is tested with the simulator, and with its protobuf classes",
	"prefill and decode in two processes of a real engine",
	"Istio, kgateway, agentgateway and Envoy AI Gateway in a cluster",
	"Envoy 1.40.2, 1.39.5 and 1.38.9, which no registry had on 2026-11-28",
	"Envoy Gateway 1.10, Agent Router 1.3, agentgateway 1.7, kgateway after 2.4.0, istiod's code of 1.32: nor these",
	"Gateway API 1.7, whose module needs Go 1.27",
	"a cluster of several nodes, enforced network policies, autoscaling",
	"machines with arm64, and macOS: their programs are compiled, and the image's files are looked at",
	"a Redis cluster of several nodes, and stores of cloud providers",
	"clients against a trained model: the client matrix has simulated engines",
}

func jsonFile(root string) string { return filepath.Join(root, "docs", "support.json") }
func pageFile(root string) string { return filepath.Join(root, "docs", "support.md") }

// write is "support write".
func write(ctx context.Context, root string, stdout io.Writer) error {
	support, err := gather(ctx, root)
	if err != nil {
		return err
	}
	text, err := support.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(jsonFile(root), text, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(pageFile(root), []byte(support.page()), 0o644); err != nil {
		return err
	}

	for _, t := range support.Targets {
		fmt.Fprintf(stdout, "%-18s %s%s\n", t.Target, t.Result, t.before())
	}
	if support.Filter.Dirty {
		fmt.Fprintln(stdout, "The tree has changes that are not committed, so no result counts:")
		fmt.Fprintln(stdout, "commit, run the targets, and then make support.")
	}
	return nil
}

// encode returns the text of docs/support.json.
func (s *Support) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	// People read it too: "<" stays one character.
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(s)
	return b.Bytes(), err
}

// gather makes the matrix for the code of the tree from the records in bin/runs and those that docs/support.json has.
func gather(ctx context.Context, root string) (*Support, error) {
	code, err := codeOf(ctx, root)
	if err != nil {
		return nil, err
	}
	date, err := git(ctx, root, "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	committed, err := time.Parse(time.RFC3339, strings.TrimSpace(date))
	if err != nil {
		return nil, err
	}

	runs, err := readRuns(runsDir(root))
	if err != nil {
		return nil, err
	}
	// Other machines have run what this one cannot, and "make clean" removes the files of this one.
	before, err := readSupport(root)
	if err != nil {
		return nil, err
	}
	for _, t := range before.Targets {
		if t.Run != nil {
			runs = append(runs, *t.Run)
		}
	}

	all, err := components(root)
	if err != nil {
		return nil, err
	}
	releases, err := readReleases(root)
	if err != nil {
		return nil, err
	}
	help, err := readHelp(root)
	if err != nil {
		return nil, err
	}

	s := &Support{
		Filter:   Filter{code, committed.UTC().Format(time.RFC3339)},
		Releases: releases, Components: all, Uncovered: uncovered,
	}
	for _, t := range targets {
		s.Targets = append(s.Targets, resultOf(t.name, help[t.name], runs, code))
	}
	s.judge()
	return s, nil
}

// readSupport reads docs/support.json. It is empty where the file is not.
func readSupport(root string) (*Support, error) {
	s := &Support{}
	err := readJSON(jsonFile(root), s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		// A merge of two branches leaves both results in it.
		return nil, fmt.Errorf("%w: after a merge take the file of either side, and run make support", err)
	}
	return s, nil
}

// resultOf chooses the run that stands for a target: one of this code before all others, then the latest.
func resultOf(name, help string, runs []Run, code Code) Result {
	result := Result{Target: name, Help: help, Result: notRun}
	for _, run := range runs {
		if run.Target != name {
			continue
		}
		if is := run.isOf(code); is && result.Result == notRun || is == (result.Result != notRun) &&
			(result.Run == nil || run.Date > result.Run.Date) {
			result.Run = &run
			result.Result = notRun
			if is {
				result.Result = run.Result
			}
		}
	}
	return result
}

// isOf reports whether the run was one of this code, and of nothing else.
func (r *Run) isOf(code Code) bool {
	return r.Code.Code == code.Code && !r.Dirty && !code.Dirty
}

// before says of a target that was not run what its last run was.
func (r *Result) before() string {
	if r.Result != notRun || r.Run == nil {
		return ""
	}
	what := "other code"
	if r.Run.Dirty {
		what = "a changed tree"
	}
	return fmt.Sprintf("; %s %s, with %s", r.Run.Result, r.Run.Date[:len(time.DateOnly)], what)
}

// judge writes the results of the components, from those of the targets.
func (s *Support) judge() {
	for i := range s.Components {
		c := &s.Components[i]
		for j := range c.Checks {
			check := &c.Checks[j]
			k := slices.IndexFunc(s.Targets, func(t Result) bool { return t.Target == check.Target })
			check.Result, check.Version = notRun, ""
			if k >= 0 && s.Targets[k].Result != notRun {
				check.judge(c, s.Targets[k].Run)
			}
		}
	}
}

// judge writes the result of a check, from a run of this code.
func (check *Check) judge(c *Component, run *Run) {
	check.Version = run.Versions[c.Name]
	switch {
	case c.Version != "" && check.Version != "" && check.Version != c.Version:
		// The run had another one: ENVOY_BIN was set.
	case c.Version == "" && c.Source == "" && check.Version == "":
		// The machine did not have it.
	case check.Test == "":
		check.Result = run.Result
	case run.Parts[check.Test] != "":
		check.Result = run.Parts[check.Test]
	}
	// What is left is "not run": the run did not get to the test.
}

// helpLine is a line of the Makefile that "make help" prints.
var helpLine = regexp.MustCompile(`(?m)^([a-z-]+):.*## (.*)$`)

// readHelp returns the sentence of each make target, without its bounds and variables.
func readHelp(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, err
	}
	help := map[string]string{}
	for _, m := range helpLine.FindAllStringSubmatch(string(text), -1) {
		sentence, _, _ := strings.Cut(m[2], " (")
		sentence, _, _ = strings.Cut(sentence, ";")
		help[m[1]] = sentence
	}
	return help, nil
}

// Release is a minor version.
type Release struct {
	Minor string `json:"minor"`
	// Released is the day of its first version, Latest its last version.
	Released string `json:"released"`
	Latest   string `json:"latest"`
	// End is the last day of its support, "" while no newer minor is out.
	End string `json:"end"`
}

// monthsAfterNext is how long a minor gets fixes after the next one is out, as docs/release.md promises.
const monthsAfterNext = 3

// released is a heading of CHANGELOG.md.
var released = regexp.MustCompile(`(?m)^## \[?v?(\d+\.\d+)\.(\d+)\]? - (\d{4}-\d\d-\d\d)`)

// readReleases reads the releases from CHANGELOG.md, in which the newest stands first.
func readReleases(root string) ([]Release, error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}

	minors := []Release{}
	for _, m := range released.FindAllStringSubmatch(string(text), -1) {
		i := slices.IndexFunc(minors, func(r Release) bool { return r.Minor == m[1] })
		if i < 0 {
			minors = append(minors, Release{Minor: m[1], Latest: m[1] + "." + m[2]})
			i = len(minors) - 1
		}
		// The changelog begins with the newest: the last one that is read is the first of its minor.
		minors[i].Released = m[3]
	}
	slices.SortFunc(minors, func(a, b Release) int { return -compareVersions(a.Minor, b.Minor) })

	for i := 1; i < len(minors); i++ {
		next, err := time.Parse(time.DateOnly, minors[i-1].Released)
		if err != nil {
			return nil, fmt.Errorf("CHANGELOG.md: the date of %s: %w", minors[i-1].Minor, err)
		}
		minors[i].End = next.AddDate(0, monthsAfterNext, 0).Format(time.DateOnly)
	}
	return minors, nil
}
