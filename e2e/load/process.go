package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Process is a process of this machine whose use of it is measured (Linux).
type Process struct {
	Name string
	PID  int
}

// Memory returns the resident memory in bytes.
func (p Process) Memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		return 0, fmt.Errorf("%s has ended: %w", p.Name, err)
	}

	// The size of the address space, the resident part, and more, in pages.
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm has no figures", p.PID)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// Usage is what processes have used, by their names.
type Usage struct {
	CPU map[string]time.Duration
	// Memory is resident bytes.
	Memory map[string]int64
}

// Measure reads what processes have used so far.
func Measure(all []Process) (Usage, error) {
	u := Usage{CPU: map[string]time.Duration{}, Memory: map[string]int64{}}
	for _, p := range all {
		cpu, err := p.CPU()
		if err != nil {
			return u, err
		}
		u.CPU[p.Name] = cpu
		if u.Memory[p.Name], err = p.Memory(); err != nil {
			return u, err
		}
	}
	return u, nil
}

// Since returns u with the CPU time of before subtracted.
func (u Usage) Since(before Usage) Usage {
	cpu := make(map[string]time.Duration, len(u.CPU))
	for name, t := range u.CPU {
		cpu[name] = t - before.CPU[name]
	}
	u.CPU = cpu
	return u
}
