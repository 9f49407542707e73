// Command table runs the project's benchmarks and prints their results as one
// table: what was measured, the value, its limit, the ratio of limit and value
// (more than 1 is good) and the goal.
//
//	go run ./harmony/bench/table [-rounds 5] [-benchtime 100ms] [-against COMMIT] [-update]
//
// All benchmarks run once per round, and the table shows the medians of the
// rounds. Times are CPU time.
//
// The benchmarks of an earlier commit, the baseline, run beside them in turns. The command
// fails if a benchmark takes more than 15 % longer than the baseline's. The baseline is the
// commit in the file baseline, or the one of -against; "none" compares with nothing.
// -update records the commit of the work tree as the baseline of later runs.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "number of rounds")
	benchtime := flag.String("benchtime", "100ms", "time of one benchmark, as in go test -benchtime")
	against := flag.String("against", "", "commit of the baseline, or none; default: the recorded one")
	update := flag.Bool("update", false, "record this commit as the baseline, and accept its losses")
	flag.Parse()

	if err := run(*rounds, *benchtime, *against, *update); err != nil {
		log.Fatal("table: ", err)
	}
}

func run(rounds int, benchtime, against string, update bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}

	// Before the minutes of measuring, because a tree that is not committed has no commit to record.
	if update {
		if err := unchanged(root); err != nil {
			return err
		}
	}

	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary

	b, err := build(root, dir, against)
	if err != nil {
		return err
	}
	b.benchtime = benchtime
	if err := b.measure(rounds); err != nil {
		return err
	}

	table, err := rows(b.now.figures)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, head(time.Now()))
	if err := write(os.Stdout, table); err != nil {
		return err
	}

	// A loss is shown even when it is accepted.
	err = b.compare(os.Stdout)
	if update {
		return record(root)
	}
	return err
}

// head is the line above the table: figures are worth nothing without their date and
// machine.
func head(now time.Time) string {
	return fmt.Sprintf("%s; %s/%s, %d CPUs, %s; CPU time, one thread", now.UTC().Format(time.DateOnly), runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// A bench is the work tree and the baseline, built.
type bench struct {
	now tree
	// before is nil if nothing is compared; commit is its.
	before *tree
	commit string

	// ours is the program of the cold start.
	ours      string
	benchtime string
}

// build builds the programs that are measured.
func build(root, dir, against string) (b bench, err error) {
	b.now = tree{root: root, dir: dir, figures: figures{}}
	if err := b.now.build(); err != nil {
		return b, err
	}

	b.ours = filepath.Join(dir, "ours")
	cmd := exec.Command("go", "build", "-o", b.ours, "./harmony/bench/ours") //nolint:gosec // our own package
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return b, fmt.Errorf("build harmony/bench/ours: %w", err)
	}

	// A clone without history has no commit to compare with, but its own figures are of use.
	if against == "none" {
		return b, nil
	}
	if b.commit, err = baselineCommit(root, against); err != nil {
		return b, err
	}

	folder := filepath.Join(dir, "baseline")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return b, fmt.Errorf("make a folder for the baseline: %w", err)
	}
	if err := checkout(root, b.commit, folder); err != nil {
		return b, err
	}

	b.before = &tree{root: folder, dir: folder, figures: figures{}}
	if err := b.before.build(); err != nil {
		return b, fmt.Errorf("baseline %.12s: %w", b.commit, err)
	}
	return b, nil
}

// measure runs all rounds, and again those of the benchmarks that seem to have lost.
func (b bench) measure(rounds int) error {
	vocabulary, err := os.Stat(filepath.Join(b.now.root, "harmony", "vocabulary.bin"))
	if err != nil {
		return fmt.Errorf("look at the vocabulary: %w", err)
	}

	b.now.figures.add("vocabulary", "MB", float64(vocabulary.Size())/1e6)

	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		if err := coldStart(b.ours, b.now.figures); err != nil {
			return err
		}
		if err := b.round(i, suites); err != nil {
			return err
		}
	}

	if b.before == nil {
		return nil
	}
	return b.confirm(rounds)
}

// repeats is how often what seems to have lost is measured again. The shortest times of
// both sides can be of different minutes, and the machine's speed changes between them. A
// loss of the code stays however often it is measured; that of the machine does not.
const repeats = 4

// confirm measures again what seems to have lost, until nothing does.
func (b bench) confirm(rounds int) error {
	for n := range repeats {
		lost := losing(changes(b.now.figures, b.before.figures))
		if len(lost) == 0 {
			return nil
		}

		fmt.Fprintf(os.Stderr, "slower than the baseline, measured again (%d of %d): %v\n", n+1, repeats, lost)
		for i := range rounds {
			if err := b.round(i, lost); err != nil {
				return err
			}
		}
	}
	return nil
}

// round measures suites once. Work tree and baseline take turns, and in every second
// round the baseline is first.
func (b bench) round(number int, suites []suite) error {
	trees := []*tree{&b.now}
	if b.before != nil {
		trees = append(trees, b.before)
	}

	// A machine that gets slower within a round must not always do so for the same side.
	if number%2 == 1 {
		slices.Reverse(trees)
	}

	for _, s := range suites {
		for _, name := range s.benchmarks {
			for _, t := range trees {
				if err := t.run(s.pkg, name, b.benchtime); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// compare prints what has changed since the baseline. It returns an error if there is a loss, or
// nothing to compare.
func (b bench) compare(w io.Writer) error {
	if b.before == nil {
		return nil
	}

	all := changes(b.now.figures, b.before.figures)
	if len(all) == 0 {
		return errNothing
	}

	summary(w, b.commit, all)
	return compare(w, b.now.figures, b.before.figures)
}

func moduleRoot() (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}
