// Command support keeps the support matrix: what was run with which versions, and what came of it.
//
// "support run" stands around a make target. It passes the output on, and leaves a [Run] in bin/runs: the commit, the
// versions that took part, and the outcome. The Makefile calls it for every target of [targets], so that nobody has to
// think of it:
//
//	support run -target test-charts -- make RECORDING=yes test-charts
//
// "support write" (make support) merges the runs into docs/support.json and writes docs/support.md from that. Tests of
// this package hold that the page is what the JSON gives, and that the JSON names the versions of this tree.
//
// "support outdated" (make outdated) asks the registries, with their own clients, for newer versions than these.
//
// # What counts
//
// A result stands for the code that it was made with, and for no other. [codeOf] names code by a hash of all tracked
// files, except the Markdown pages and the records beside them: a run does not lose its worth because its result was
// written down. A target without a run of exactly this code is "not run", whatever it was before. A run in a changed
// tree does not count, a run that a variable made smaller ([target.narrowing]) leaves no record, and one that did not
// end has failed.
//
// # What it knows
//
// [components] are the things that the filter is used with: Envoys, gateways, engines, clients. Their versions are read
// where the tests have them, and nowhere else: a new version in a lock file is one here after the next make support.
// The program does not judge tests; it knows their exit status, and the lines that go test prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const usage = `Usage:
  support run -target TARGET -- COMMAND...   run a command and leave a record of it in bin/runs
  support write                              write docs/support.json and docs/support.md
  support show                               print the records in bin/runs
  support outdated                           print what the registries have that is newer than the versions of the tree
`

func main() {
	status, err := command(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "support:", err)
	}
	os.Exit(status)
}

// command executes the arguments and returns the exit status of the process.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	root, err := findRoot()
	if err != nil {
		return 2, err
	}

	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "run":
		return runCommand(ctx, root, args[1:], stdout, stderr)
	case "write":
		err = write(ctx, root, stdout)
	case "show":
		err = show(root, stdout)
	case "outdated":
		err = outdated(ctx, root, runClient, stdout)
	default:
		fmt.Fprint(stderr, usage)
		return 2, errors.New("name a command")
	}

	if err != nil {
		return 1, err
	}
	return 0, nil
}

// findRoot returns the folder of the project, in which or below which the program was started.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		// Modules below tools have a go.mod too, but no chart.
		if _, err := os.Stat(filepath.Join(dir, "charts", "envoy-harmony", "Chart.yaml")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("start it in the folder of the project")
		}
		dir = filepath.Dir(dir)
	}
}

// runsDir is the folder of the records, which git ignores.
func runsDir(root string) string { return filepath.Join(root, "bin", "runs") }

// show prints the target, result, date and commit of each record.
func show(root string, w io.Writer) error {
	runs, err := readRuns(runsDir(root))
	if err != nil {
		return err
	}
	for _, run := range runs {
		changed := ""
		if run.Dirty {
			changed = ", in a changed tree"
		}
		fmt.Fprintf(w, "%-18s %-8s %s  %.12s%s\n", run.Target, run.Result, run.Date, run.Commit, changed)
	}
	return nil
}
