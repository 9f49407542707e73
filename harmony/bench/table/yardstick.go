package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A yardstick is work that does not change with the project: the standard library
// reads JSON, and a walk visits a table that is larger than the second-level cache.
// Figures are compared with those of an earlier day as ratios to it, so a slower
// machine, or a busier one, is no loss.

const (
	yardstickBytes = 8 << 20
	yardstickSteps = 200_000
	yardstickTime  = 150 * time.Millisecond
)

// yardstick does the work for a while and returns the CPU time of one round in
// nanoseconds.
func yardstick() (float64, error) {
	document := []byte(`{"id":"chatcmpl-1","choices":[` + strings.Repeat(`{"index":0,"delta":{"content":" word \"and\" so on"},"logprobs":null,"score":0.125},`, 200) + `null]}`)
	table := make([]uint32, yardstickBytes/4)
	for i := range table { // one cycle through the whole table: an odd multiplier and 1 mod 4
		table[i] = (uint32(i)*1664525 + 1013904223) % uint32(len(table)) //nolint:gosec // small numbers
	}
	at, rounds := uint32(0), 0
	begin, before := time.Now(), cpuTime()
	for ; time.Since(begin) < yardstickTime || rounds < 3; rounds++ {
		for range 10 {
			var v any
			if err := json.Unmarshal(document, &v); err != nil {
				return 0, err
			}
		}
		for range yardstickSteps {
			at = table[at]
		}
	}
	took := cpuTime() - before
	if at >= uint32(len(table)) { //nolint:gosec // the same
		return 0, fmt.Errorf("the walk has left the table: %d", at)
	}
	return float64(took) / float64(rounds), nil
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// yardstickName is the yardstick among figures.
const yardstickName = "yardstick"

// measureYardstick adds the time of the yardstick in a process of its own with one
// thread, as benchmarks run.
func measureYardstick(to figures) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-yardstick")
	cmd.Env, cmd.Stderr = append(os.Environ(), "GOMAXPROCS=1"), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run the yardstick: %w", err)
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(output)), 64)
	if err != nil {
		return fmt.Errorf("run the yardstick: %w", err)
	}
	to.add(yardstickName, "ns/op", ns)
	return nil
}
