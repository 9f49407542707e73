//go:build !linux

package main

import (
	"errors"
	"time"
)

// CPU is known on Linux only.
func (p Process) CPU() (time.Duration, error) {
	return 0, errors.New("this is not Linux: the CPU time of other processes is not known")
}
