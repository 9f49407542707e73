package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// EngineSim is the path of the simulated engine's binary. [Main] builds it.
var EngineSim string

// AtEnd is called when all tests of a package have ended.
var AtEnd = func() {}

// Main is TestMain of every package of tests. The tests run in folder e2e, wherever
// their package is: the clients and data that packages share are there.
func Main(m *testing.M) {
	// Tests start this binary as an MCP server, which runs no tests.
	serveStdio()

	// The paths of the build are relative to folder e2e.
	err := enter()
	if err == nil {
		EngineSim, err = build("engine-sim")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	// Sessions of an MCP server in the tests may outlive a broken connection.
	sessions := goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read")
	// goleak leaves the exit to the function of Cleanup.
	goleak.VerifyTestMain(m, sessions, goleak.Cleanup(func(code int) {
		AtEnd()
		os.Exit(code)
	}))
}

// enter changes to folder e2e of the module.
func enter() error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("enter folder e2e: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return os.Chdir(filepath.Join(dir, "e2e"))
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return errors.New("enter folder e2e: no go.mod above the working directory")
		}
		dir = parent
	}
}

// build builds a program of folder cmd and returns its path. All packages of tests
// share the file: go build leaves it as it is if nothing has changed. They run side by
// side, so that a lock lets one build at a time.
func build(program string) (path string, err error) {
	folder, err := filepath.Abs(filepath.Join("..", "bin", "e2e"+raceSuffix))
	if err != nil {
		return "", fmt.Errorf("build %s: %w", program, err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", fmt.Errorf("build %s: %w", program, err)
	}

	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", program, err)
	}
	defer lock.Close() // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("build %s: lock %s: %w", program, lock.Name(), err)
	}

	path = filepath.Join(folder, program)
	if out, err := exec.Command("go", BuildArgs(path, "../cmd/"+program)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return path, nil
}

// BuildProgram builds envoy-harmony once, and returns the path of the binary.
var BuildProgram = sync.OnceValues(func() (string, error) { return build("envoy-harmony") })

// BuildArgs are arguments of go that build a program of the tests.
func BuildArgs(path, pkg string) []string {
	return append(append([]string{"build"}, raceFlags...), "-o", path, pkg)
}
