package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// figures are the results of one or more runs: by benchmark and unit, one value
// per run. The name of a benchmark begins with its package, such as
// harmony.ParserToken/strict.
type figures map[string]map[string][]float64

func (f figures) add(name, unit string, value float64) {
	if f[name] == nil {
		f[name] = map[string][]float64{}
	}
	f[name][unit] = append(f[name][unit], value)
}

// addOutput adds the results in the output of "go test -bench". It multiplies
// times by scale and divides rates by it.
func (f figures) addOutput(pkg, output string, scale float64) error {
	lines := bufio.NewScanner(strings.NewReader(output))
	for lines.Scan() {
		name, isResult := strings.CutPrefix(lines.Text(), "Benchmark")
		fields := strings.Fields(name)
		if !isResult || len(fields) < 4 {
			continue
		}

		// Log lines of a benchmark can begin with its name too.
		if _, err := strconv.Atoi(fields[1]); err != nil {
			continue
		}
		// The name and the number of iterations are followed by pairs of value and unit.
		for pair := range slices.Chunk(fields[2:], 2) {
			if len(pair) != 2 {
				return fmt.Errorf("a value without unit: %s", lines.Text())
			}
			value, err := strconv.ParseFloat(pair[0], 64)
			if err != nil {
				return fmt.Errorf("a value that is not a number: %s", lines.Text())
			}

			switch pair[1] {
			case "ns/op":
				value *= scale
			case "MB/s":
				value /= scale
			}
			f.add(pkg+"."+fields[0], pair[1], value)
		}
	}
	return lines.Err()
}

// median returns the median of the runs, or false if there are none.
func (f figures) median(name, unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(f[name][unit]))
	if len(values) == 0 {
		return 0, false
	}
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// most returns the greatest median of the benchmarks whose names have one of
// the prefixes.
func (f figures) most(unit string, prefixes ...string) (most float64, ok bool) {
	for name := range maps.Keys(f) {
		for _, p := range prefixes {
			if v, measured := f.median(name, unit); measured && strings.HasPrefix(name, p) {
				most, ok = max(most, v), true
			}
		}
	}
	return most, ok
}

// worstKinds returns the kinds of input measured by UnseenWorst.
func (f figures) worstKinds() []string {
	var kinds []string
	for name := range f {
		if kind, ok := strings.CutPrefix(name, worst); ok {
			kinds = append(kinds, strings.Split(kind, "/")[0])
		}
	}

	// Each kind has a result for each size.
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// suite is a package with benchmarks that the table shows.
type suite struct {
	// pkg is the path of the package from the root.
	pkg        string
	benchmarks []string
}

func (s suite) String() string { return s.pkg + "." + strings.Join(s.benchmarks, "|") }

// tree is the sources of a commit, or of the work tree, the folder of the programs built
// of them, and what they measured.
type tree struct {
	root    string
	dir     string
	figures figures
}

func (t tree) binary(pkg string) string {
	return filepath.Join(t.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
}

// build compiles the tests of all packages that the tree has. They are used in all rounds.
func (t tree) build() error {
	for _, s := range suites {
		// A package that is newer than the baseline has nothing to compare with.
		if _, err := os.Stat(filepath.Join(t.root, s.pkg)); errors.Is(err, fs.ErrNotExist) {
			continue
		}

		cmd := exec.Command("go", "test", "-c", "-o", t.binary(s.pkg), "./"+s.pkg) //nolint:gosec // our own package
		cmd.Dir, cmd.Stderr = t.root, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build the benchmarks of %s: %w", s.pkg, err)
		}
	}
	return nil
}

// run runs a benchmark in a process of its own with one thread. Benchmarks
// report wall-clock time. Multiplied by the share of CPU time of the process,
// it is CPU time, even on a machine with other load. A tree without the package has no
// result.
func (t tree) run(pkg, name, benchtime string) error {
	binary := t.binary(pkg)
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	flags := []string{
		"-test.run=^$", "-test.bench=^Benchmark" + name + "$", "-test.benchmem", "-test.benchtime=" + benchtime,
	}
	cmd := exec.Command(binary, flags...) //nolint:gosec // built above
	cmd.Dir, cmd.Stderr = filepath.Join(t.root, pkg), os.Stderr
	// The collector's share would hide on a second core.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")

	start := time.Now()
	output, err := cmd.Output()
	elapsed := time.Since(start)
	if err != nil {
		return fmt.Errorf("run %s of %s: %w", name, pkg, err)
	}

	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()

	// More than 1 would come from the runtime's other threads, such as the collector's.
	return t.figures.addOutput(pkg, string(output), min(1, float64(cpu)/float64(elapsed)))
}

// coldStart measures a new process that encodes one letter.
func coldStart(program string, to figures) error {
	// In a program of its own, because the process of a benchmark has started long before it.
	cmd := exec.Command(program, "encode") //nolint:gosec // built above
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("measure the cold start: %w", err)
	}

	var load float64
	if _, err := fmt.Sscanf(string(output), "load %g", &load); err != nil {
		return fmt.Errorf("measure the cold start: %q: %w", output, err)
	}

	to.add("cold", "ms", load)

	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		// Linux counts in KB.
		to.add("cold", "MB", float64(usage.Maxrss)/1024)
	}
	return nil
}
