package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// simulator is the program that simulates an engine. It is a program of its own, so
// that nothing of it is in this one, which serves production.
const simulator = "engine-sim"

// simulation is a running simulator, for "run --simulate".
type simulation struct {
	address string // host:port
	stop    func() // ends the process and waits for its end

	ended chan struct{} // closed when the process has ended
	err   error         // why it has ended; set before ended is closed
}

// done returns a channel that is closed when the simulator has ended; nil, which
// blocks, if there is none.
func (s *simulation) done() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.ended
}

// findSimulator returns the path of the simulator: beside this program, where "make
// build" and the archives of a release have it, or else in PATH.
func findSimulator() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", simulator, err)
	}
	beside := filepath.Join(filepath.Dir(self), simulator)
	for _, name := range []string{beside, simulator} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("--simulate starts the program %s, which is neither beside this one nor in PATH: "+
		"in the source of envoy-harmony, run make build and then bin/envoy-harmony, or: go build -o %s "+
		"./cmd/%s", simulator, beside, simulator)
}

// simulate starts the simulator on a free port of 127.0.0.1.
func simulate() (*simulation, error) {
	path, err := findSimulator()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--listen", "127.0.0.1:0", "--until-stdin-ends")
	// Ctrl-C in a terminal must reach only this process, which drains first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	// Nothing is written to it. It ends when this process ends, even if it is killed, and
	// the simulator with it.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the simulated engine: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the simulated engine: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the simulated engine: %w", err)
	}

	// The line is read before Wait is called, which closes the pipe.
	line, err := bufio.NewReader(stdout).ReadString('\n')
	s := &simulation{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		if s.err = cmd.Wait(); s.err == nil {
			s.err = errors.New("the process exited without an error")
		}
	}()
	s.stop = func() {
		_ = cmd.Process.Kill() // on error the process has already ended
		<-s.ended
	}

	address, found := strings.CutPrefix(strings.TrimSpace(line), simulator+" listening on http://")
	if err != nil || !found {
		s.stop()
		return nil, errors.Join(fmt.Errorf("start the simulated engine: %s does not say where it listens", path), s.err)
	}
	s.address = address
	return s, nil
}
