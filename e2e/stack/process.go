package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// OSProcess is the id of a process whose use of the machine is measured (Linux).
type OSProcess int

// CPUOf returns the CPU time of processes, all threads together.
func CPUOf(b *testing.B, processes ...OSProcess) (sum time.Duration) {
	b.Helper()
	for _, p := range processes {
		// schedstat counts nanoseconds, stat only ticks of 10 ms.
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
		if err != nil {
			b.Fatal(err)
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}

			var nanoseconds int64
			// The first field is the time on a CPU, the second the time of waiting for one.
			if _, err := fmt.Sscan(string(text), &nanoseconds); err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(nanoseconds)
		}
	}
	return sum
}

// Started returns the processes that work starts, in their order.
func Started(b *testing.B, work func()) (all []OSProcess) {
	b.Helper()
	before := children(b)
	work()
	for _, p := range children(b) {
		if !slices.Contains(before, p) {
			all = append(all, p)
		}
	}

	// The kernel gives ids in ascending order; Glob sorts them as texts.
	slices.Sort(all)
	return all
}

// children returns the processes that this one has started.
func children(b *testing.B) (all []OSProcess) {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}

		// PID (COMMAND) STATE PARENT
		pid, rest, _ := strings.Cut(string(text), " ")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			n, _ := strconv.Atoi(pid)
			all = append(all, OSProcess(n))
		}
	}
	return all
}
