package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestCPUOfEndedThread checks that what a thread has used counts when it has ended.
func TestCPUOfEndedThread(t *testing.T) {
	self := Process{"self", os.Getpid()}
	before, err := self.CPU()
	if err != nil {
		t.Fatal(err)
	}

	const burn = 30 * time.Millisecond
	thread, end := make(chan int), make(chan struct{})
	defer close(end)
	var work func()
	work = func() {
		// A goroutine that ends while it is locked ends its thread; except the first one of
		// the process, which it holds here, so that the next goroutine gets another.
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			go work()
			<-end
			return
		}

		used := func() time.Duration {
			var u syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_THREAD, &u)
			return time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		for begin := used(); used()-begin < burn; {
		}
		thread <- syscall.Gettid()
	}
	go work()

	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	for range 1000 {
		if _, err := os.Stat(task); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(task); err == nil {
		t.Fatal("the thread goes on")
	}

	if after, err := self.CPU(); err != nil || after-before < burn {
		t.Errorf("%v after %v, %v", after, before, err)
	}
}

// TestCPUOfEndedProcess checks that a process that has ended is an error.
func TestCPUOfEndedProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if cpu, err := (Process{"true", cmd.Process.Pid}).CPU(); err == nil {
		t.Errorf("%v", cpu)
	}
}
