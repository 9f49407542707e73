package main

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// CPU returns the CPU time of all threads, those that have ended included: a runtime such
// as that of smg ends threads that are idle, and a sum over the threads of now would fall.
func (p Process) CPU() (time.Duration, error) {
	// The clock of a process, as glibc's clock_getcpuclockid makes it of the id: nanoseconds,
	// where /proc/PID/stat has only ticks of 10 ms.
	clock := ^int32(p.PID)<<3 | 2 //nolint:gosec // ids of processes have 22 bits
	var t syscall.Timespec
	//nolint:gosec // the kernel writes it
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("%s has ended: read its CPU clock: %w", p.Name, errno)
	}
	return time.Duration(t.Nano()), nil
}
