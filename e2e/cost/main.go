// Command cost searches for requests that cost the filter too much memory or work.
// "make fuzz-cost" runs it.
//
// It decodes JSON bodies, mutates those that cost most of what a request of their size
// may cost, and begins anew: an evolutionary search with a fixed seed. A subtree is
// repeated, nested or copied, a member is given twice, a text grows, schemas get chains
// of references and unions of equal variants. Costs are counted, never timed: bytes
// that are allocated, bytes that the decoded request holds, and basic blocks that run.
// The latter need a program with counters:
//
//	go run -cover -covermode=atomic -coverpkg=./filter/...,./harmony,./e2e/cost ./e2e/cost -time 1m
//
// The command fails if a request costs more than its allowance, and prints the request.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// The names of the goals.
const (
	GoalAllocated = "allocated"
	GoalKept      = "kept"
	GoalSteps     = "steps"
)

// Goals returns what is searched for, with what a request may cost.
func Goals() []Goal {
	return []Goal{
		{GoalAllocated, Allowance{128 << 20, 128}, func(c *Cost) int64 { return c.Allocated }},
		{GoalKept, Allowance{1 << 20, 4}, func(c *Cost) int64 { return c.Kept }},
		{GoalSteps, Allowance{512 << 20, 4096}, func(c *Cost) int64 { return c.Steps }},
	}
}

func main() { os.Exit(searchAll()) }

// searchAll searches as the flags say, and returns the exit status.
func searchAll() int {
	each := flag.Duration("time", 10*time.Second, "time for each target")
	seed := flag.Uint64("seed", 1, "seed of the mutations")
	limit := flag.Int("bytes", 256<<10, "bytes that a scenario may have")
	goals := flag.String("goals", "", "regular expression of the goals: allocated, kept, steps; empty: all")
	only := flag.String("targets", "", "regular expression of the targets; empty: all")
	out := flag.String("out", "", "folder for the dearest request of each target and goal; empty: they are not written")
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
		found, err := Search(t, &Options{
			Seed: *seed, Time: *each, MaxBytes: *limit, Hang: time.Minute,
			Goals: slices.DeleteFunc(Goals(), func(g Goal) bool { return !wanted.MatchString(g.Name) }),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
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
	fmt.Fprintf(os.Stderr, "%s: a scenario of %s bytes takes more than %s:\n%s\n", target, strconv.Itoa(len(text)), after, text)
	os.Exit(1)
}
