package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// onlySimulate is a variable of the environment. It makes the test's program a process
// that starts a simulator, prints its address and waits to be killed.
const onlySimulate = "ENVOY_HARMONY_TEST_SIMULATE"

func holdSimulator() {
	s, err := simulate()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.address)
	select {} // until it is killed
}

// buildSimulator builds the simulator into a folder that it adds to PATH.
var buildSimulator = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "envoy-harmony-test-"); err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", dir, "../engine-sim").CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the simulator: %w\n%s", err, out)
	}
	return dir, os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
})

// simulatorDir is the folder of the simulator if a test has needed it.
var simulatorDir string

// needSimulator makes "run --simulate" possible in this process.
func needSimulator(t *testing.T) {
	t.Helper()
	var err error
	if simulatorDir, err = buildSimulator(); err != nil {
		t.Fatal(err)
	}
}

// answers reports whether a server accepts connections at an address.
func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// awaitSilence waits until no server listens at an address.
func awaitSilence(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); answers(address); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the simulator at %s does not end", address)
		}
	}
}

// The simulator ends when it is stopped.
func TestSimulatorStops(t *testing.T) {
	needSimulator(t)
	s, err := simulate()
	if err != nil {
		t.Fatal(err)
	}
	if !answers(s.address) {
		t.Errorf("no server at %s", s.address)
	}
	s.stop()
	if answers(s.address) {
		t.Errorf("a server at %s after the end", s.address)
	}
}

// The simulator ends with the program that started it, even if that is killed.
func TestSimulatorOfKilledProgram(t *testing.T) {
	needSimulator(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), onlySimulate+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address := strings.TrimSpace(line)
	if err != nil || !answers(address) {
		t.Fatalf("no server at %q: %v", address, err)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	awaitSilence(t, address)
}

// If the simulator dies, run ends with an error, as it does if Envoy dies.
func TestRunSimulatorDies(t *testing.T) {
	needSimulator(t)
	s, err := simulate()
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	err = awaitEnd(t.Context(), &envoy.Process{}, &service{}, s)
	if want := "the simulated engine stopped: signal: killed"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Without the simulator, run says how to build it.
func TestNoSimulator(t *testing.T) {
	needSimulator(t) // so that no later test builds it
	t.Setenv("PATH", "")
	exit, _, stderr := execute(t, nil, "run", "--simulate")
	for _, want := range []string{
		"--simulate starts the program engine-sim, which is neither beside this one nor in PATH",
		"run make build", "go build -o /", "/engine-sim ./cmd/engine-sim",
	} {
		if exit != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit status %d, %q, want %q in it", exit, stderr, want)
		}
	}
}

// A program that is not the simulator is not waited for.
func TestOtherSimulator(t *testing.T) {
	needSimulator(t)
	dir := t.TempDir()
	script := "#!/bin/sh\necho I am another program\n"
	if err := os.WriteFile(dir+"/"+simulator, []byte(script), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	exit, _, stderr := execute(t, nil, "run", "--simulate")
	if exit != 1 || !strings.Contains(stderr, dir+"/engine-sim does not say where it listens") {
		t.Errorf("exit status %d, %q", exit, stderr)
	}
}
