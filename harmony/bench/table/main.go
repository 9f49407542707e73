// Command table runs the project's benchmarks and prints their results as one
// table: what was measured, the value, its limit, the ratio of limit and value
// (more than 1 is good) and the goal.
//
//	go run ./harmony/bench/table [-rounds 5] [-benchtime 100ms]
//
// All benchmarks run once per round, and the table shows the medians of the
// rounds. Times are CPU time.
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
	flag.Parse()
	if err := run(*rounds, *benchtime); err != nil {
		log.Fatal("table: ", err)
	}
}

func run(rounds int, benchtime string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	f, err := measure(root, dir, rounds, benchtime)
	if err != nil {
		return err
	}
	table, err := rows(f)
	if err != nil {
		return err
	}
	return write(os.Stdout, table)
}

func measure(root, dir string, rounds int, benchtime string) (figures, error) {
	f := figures{}
	vocabulary, err := os.Stat(filepath.Join(root, "harmony", "vocabulary.bin"))
	if err != nil {
		return nil, fmt.Errorf("look at the vocabulary: %w", err)
	}
	f.add("vocabulary", "MB", float64(vocabulary.Size())/1e6)
	for _, s := range suites {
		if err := s.build(root, dir); err != nil {
			return nil, err
		}
	}
	ours := filepath.Join(dir, "ours")
	cmd := exec.Command("go", "build", "-o", ours, "./harmony/bench/ours") //nolint:gosec // our own package
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build harmony/bench/ours: %w", err)
	}
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		if err := coldStart(ours, f); err != nil {
			return nil, err
		}
		for _, s := range suites {
			if err := s.run(root, dir, benchtime, f); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

func moduleRoot() (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}
