// Command table runs the project's benchmarks and prints their results as one
// table: what was measured, the value, its limit, the ratio of limit and value
// (more than 1 is good) and the goal.
//
//	go run ./harmony/bench/table [-rounds 5] [-benchtime 100ms] [-update]
//
// All benchmarks run once per round, and the table shows the medians of the
// rounds. Times are CPU time.
//
// The command fails if a benchmark has become slower than recorded in ratios.json by
// more than 15 %, as a ratio to other work that is measured beside it. -update records
// the ratios of this run.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "number of rounds")
	benchtime := flag.String("benchtime", "100ms", "time of one benchmark, as in go test -benchtime")
	update := flag.Bool("update", false, "record the ratios of this run")
	measureOnly := flag.Bool("yardstick", false, "print the CPU time of the yardstick in nanoseconds, and nothing else")
	flag.Parse()
	if *measureOnly {
		ns, err := yardstick()
		if err != nil {
			log.Fatal("table: ", err)
		}
		_, err = fmt.Fprintln(os.Stdout, ns)
		if err != nil {
			log.Fatal("table: ", err)
		}
		return
	}
	if err := run(*rounds, *benchtime, *update); err != nil {
		log.Fatal("table: ", err)
	}
}

func run(rounds int, benchtime string, update bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	if err := build(root, dir); err != nil {
		return err
	}
	f, err := measure(root, dir, rounds, benchtime)
	if err != nil {
		return err
	}
	before, err := readRatios(recorded(root))
	if err != nil && !update {
		return fmt.Errorf("read the recorded ratios: %w", err)
	}
	if !update && lost(before, f.ratios()) {
		fmt.Fprintln(os.Stderr, "slower than recorded: everything is measured again, to be sure")
		if err := f.rounds(root, dir, rounds, benchtime); err != nil {
			return err
		}
	}
	table, err := rows(f)
	if err != nil {
		return err
	}
	if err := write(os.Stdout, table); err != nil {
		return err
	}
	if update {
		return writeRatios(recorded(root), f.ratios())
	}
	return compare(os.Stdout, before, f.ratios())
}

// build builds the programs that are measured.
func build(root, dir string) error {
	for _, s := range suites {
		if err := s.build(root, dir); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "ours"), "./harmony/bench/ours") //nolint:gosec // our own package
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build harmony/bench/ours: %w", err)
	}
	return nil
}

func measure(root, dir string, rounds int, benchtime string) (figures, error) {
	f := figures{}
	vocabulary, err := os.Stat(filepath.Join(root, "harmony", "vocabulary.bin"))
	if err != nil {
		return nil, fmt.Errorf("look at the vocabulary: %w", err)
	}
	f.add("vocabulary", "MB", float64(vocabulary.Size())/1e6)
	return f, f.rounds(root, dir, rounds, benchtime)
}

// rounds measures everything that was built.
func (f figures) rounds(root, dir string, rounds int, benchtime string) error {
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		if err := coldStart(filepath.Join(dir, "ours"), f); err != nil {
			return err
		}
		for _, s := range suites {
			if err := s.run(root, dir, benchtime, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func moduleRoot() (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}
