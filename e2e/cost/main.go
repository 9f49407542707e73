// Command cost searches for requests that cost the filter too much memory or work.
// "make fuzz-cost" runs it.
//
// A case is a [scenario]: what the client has stored, its request, what the model answers,
// what a server of tools lists. A [Target] is what is done with one: a request is handled, or
// its reply is made by the filter's own state machine, or both. The search begins with
// scenarios of honest clients. It mutates those that cost most for their bytes: an element, a
// member or a piece of a text is repeated, values are nested and copied, schemas get chains of
// references and unions of equal variants, patterns and grammars get words of their languages.
// What costs more than in proportion grows, until it costs more than its allowance. The dearest
// are kept for each function in which most of the cost is, so that a dear kind of work that is
// bounded does not hide a beginning of another one; texts go from one kind to another.
//
// Costs are counted, never timed: bytes that are allocated, bytes that the handled request
// holds, and basic blocks that run. The latter need a program with counters, which the
// Makefile builds: it names the packages that count. With the same flags but -time, the search
// is about the same each time. The map of the package:
//
//	scenario.go  what a case is                   mutate.go, words.go  how cases change
//	targets.go   what is measured, with its state search.go            which cases are kept
//	play.go      the reply to a request           measure.go           what a case costs
//	mcp.go       a server of tools                tree.go              JSON that can be changed
//
// The command fails if a scenario costs more than its allowance, and prints the scenario.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"time"
)

// The names of the goals.
const (
	GoalAllocated = "allocated"
	GoalKept      = "kept"
	GoalSteps     = "steps"
)

// Goals returns what is searched for, with what a request may cost. As many blocks as the
// constant part of the steps run in about half a second of a core.
func Goals() []Goal {
	return []Goal{
		{GoalAllocated, Allowance{64 << 20, 128}, func(c *Cost) int64 { return c.Allocated }},
		{GoalKept, Allowance{1 << 20, 4}, func(c *Cost) int64 { return c.Kept }},
		{GoalSteps, Allowance{512 << 20, 1024}, func(c *Cost) int64 { return c.Steps }},
	}
}

func main() { os.Exit(searchAll()) }

// searchAll searches as the flags say, and returns the exit status.
func searchAll() int {
	each := flag.Duration("time", 10*time.Second, "time for each target")
	rounds := flag.Int("rounds", 0, "measured scenarios for each target, at most; 0: as many as the time allows")
	seed := flag.Uint64("seed", 1, "seed of the mutations")
	limit := flag.Int("bytes", 512<<10, "bytes that a scenario may have")
	goals := flag.String("goals", "", "regular expression of the goals: allocated, kept, steps; empty: all")
	only := flag.String("targets", "", "regular expression of the targets; empty: all")
	out := flag.String("out", "", "folder for the dearest scenario of each target and goal; empty: none is written")
	flag.Parse()

	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	wanted, err := regexp.Compile(*goals)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	targets, closeAll := Targets()
	defer closeAll()

	failed := false
	for i := range targets {
		t := &targets[i]
		if !pattern.MatchString(t.Name) {
			continue
		}

		// A minute is far beyond the allowance of steps, which begins with half a second of a core.
		found, err := Search(t, &Options{
			Seed: *seed, Rounds: *rounds, Time: *each, MaxBytes: *limit, Hang: time.Minute,
			Goals: slices.DeleteFunc(Goals(), func(g Goal) bool { return !wanted.MatchString(g.Name) }),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}

		// The other targets are searched even if one has failed: a run takes long.
		failed = report(os.Stdout, t, found) || failed
		if err := write(*out, t, found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}

	if failed {
		return 1
	}
	return 0
}

// write writes the dearest requests of a target to files of a folder.
func write(folder string, t *Target, all []Found) error {
	if folder == "" {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range all {
		if err := os.WriteFile(filepath.Join(folder, t.Name+"-"+f.Goal.Name+".json"), f.Text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hang ends the program: nothing can stop work that does not end.
func hang(target string, text []byte, after time.Duration) {
	debug.SetTraceback("all")
	fmt.Fprintf(os.Stderr, "%s: a scenario of %d bytes takes more than %s:\n%s\n", target, len(text), after, text)
	os.Exit(1)
}
