package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Results of a run, and of a component.
const (
	passed  = "passed"
	failed  = "failed"
	inPart  = "in part" // it passed, and tests were skipped
	skipped = "skipped" // all of its tests were
	notRun  = "not run"
)

// Run is the record of one execution of a make target.
type Run struct {
	Target string `json:"target"`
	// Command is what was typed, with the variables that change what the target does.
	Command string `json:"command"`

	Code

	// Date is when it began, in UTC.
	Date    string  `json:"date"`
	Seconds float64 `json:"seconds"`

	Result string `json:"result"`
	// Reason is why it failed, if that is not the exit status of the command.
	Reason string `json:"reason,omitempty"`

	Outcome

	// Versions are those of programs that took part, as they say it themselves.
	Versions map[string]string `json:"versions,omitempty"`
}

// runCommand is "support run". It returns the exit status of the command.
func runCommand(ctx context.Context, root string, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("target", "", "the make `target`")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}

	t := findTarget(*name)
	if t == nil || flags.NArg() == 0 {
		fmt.Fprint(stderr, usage)
		return 2, fmt.Errorf("target %q: name one of docs/support/targets.go, and a command", *name)
	}

	if why := t.unfit(os.Getenv); why != "" {
		fmt.Fprintf(stderr, "support: no record of this run is kept: %s\n", why)
		return execute(flags.Args(), stdout, stderr)
	}
	// Where versions of the tree cannot be read, "support write" fails, and a test. Other tests run all the same.
	all, err := components(root)
	if err != nil {
		fmt.Fprintf(stderr, "support: no client or engine gets a result of its own: %v\n", err)
	}
	return t.record(ctx, root, t.testsOf(all), flags.Args(), stdout, stderr)
}

// unfit returns why a run with these variables says nothing about the target; "": it does.
func (t *target) unfit(getenv func(string) string) string {
	// In the first word of MAKEFLAGS are the flags of one letter. With n, q and t nothing is executed, with i every
	// error is ignored: make succeeds in each case.
	first, _, _ := strings.Cut(strings.TrimSpace(getenv("MAKEFLAGS")), " ")
	if !strings.HasPrefix(first, "-") && !strings.Contains(first, "=") && strings.ContainsAny(first, "nqti") {
		return "make -" + first + " does not say whether the target works"
	}

	for name, whole := range t.narrowing {
		if value := getenv(name); value != "" && value != whole {
			return name + " makes it smaller"
		}
	}
	return ""
}

// record executes the command and keeps a record of it. parts are the tests and sections whose results it has.
func (t *target) record(
	ctx context.Context, root string, parts map[string]bool, args []string, stdout, stderr io.Writer,
) (int, error) {
	start := time.Now()
	run := Run{
		Target: t.name, Command: t.command(os.Getenv), Date: start.UTC().Format(time.RFC3339),
		Result: failed, Reason: "it did not end",
	}

	// A record that cannot be made is no reason to fail a test.
	warn := func(err error) {
		if err != nil {
			fmt.Fprintf(stderr, "support: the record of %s: %v\n", t.name, err)
		}
	}

	// Without git, or with a git that fails, nobody knows what ran.
	var err error
	if run.Code, err = codeOf(ctx, root); err != nil {
		warn(err)
		run.Dirty = true
	}

	// A process that is killed leaves this one, and not the record of a run before.
	warn(run.save(runsDir(root)))
	lines := newReader(parts)
	status, err := execute(args,
		io.MultiWriter(stdout, &stream{reader: lines}), io.MultiWriter(stderr, &stream{reader: lines}))
	if err != nil {
		return status, err
	}

	run.Seconds = time.Since(start).Round(time.Second).Seconds()
	run.Outcome, run.Result, run.Reason = lines.end(status == 0), failed, ""
	if status == 0 {
		run.Result = run.result()
	}
	run.Versions = t.probe(ctx, root, lines)

	// Somebody who edits while a test runs changes what it tests. A commit of pages does not.
	if after, err := codeOf(ctx, root); err != nil || after.Dirty || after.Code != run.Code.Code {
		run.Dirty = true
	}
	warn(run.save(runsDir(root)))
	return status, nil
}

// execute runs a command and returns its exit status. Signals go to the command, whose end is waited for.
func execute(args []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
	// Make gets the terminal's signals itself. This process has to outlive it, to write the record.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 2, err
	}

	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()

	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), nil
	default:
		// Ended by a signal.
		return 1, nil
	}
}

// save writes the record as the only one of its target.
func (r *Run) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}

	// Renamed, so that "support write" beside it never reads half a file.
	file := filepath.Join(dir, r.Target+".json")
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// readRuns reads the records of a folder, sorted by target. A folder that is not there has none.
func readRuns(dir string) ([]Run, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}

	runs := make([]Run, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var run Run
		if err := json.Unmarshal(text, &run); err != nil {
			return nil, fmt.Errorf("%s: %w: delete it, and run its target again", file, err)
		}
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b Run) int { return strings.Compare(a.Target, b.Target) })
	return runs, nil
}
