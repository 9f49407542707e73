package envoy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

const parentRole = "ENVOY_HARMONY_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		beParent()
	}
	goleak.VerifyTestMain(m)
}

// find is the Envoy of these tests, which do not run without one.
func find(t *testing.T) string {
	t.Helper()
	path, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func someBootstrap() ([]byte, error) {
	return envoy.Bootstrap(envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: "unix:///nowhere",
		Engines: []envoy.Engine{{Name: "e", URLs: []string{"http://127.0.0.1:1"}}},
	})
}

func TestValidate(t *testing.T) {
	binary := find(t)
	for name, options := range examples {
		t.Run(name, func(t *testing.T) {
			if options.CAFile != "" {
				options.CAFile = "testdata/ca.pem"
			}
			text, err := envoy.Bootstrap(options)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), binary, "--mode", "validate", "--log-level", "error", "-c", path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestLaunch(t *testing.T) {
	text, err := someBootstrap()
	if err != nil {
		t.Fatal(err)
	}
	p, err := envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: find(t), Bootstrap: text, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	address, err := p.ListenAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := p.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	p.Stop(t.Context())
	select {
	case <-p.Done():
	default:
		t.Error("Stop came back before the process was gone")
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Errorf("%s still answers", address)
	}
}

func TestLaunchFails(t *testing.T) {
	_, err := envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: find(t), Bootstrap: []byte("admin: {nope: 1}")})
	if err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("error %v does not say what Envoy said", err)
	}
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: filepath.Join(t.TempDir(), "none")})
	if err == nil {
		t.Error("a binary that does not exist starts")
	}
	var said strings.Builder
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: find(t), Bootstrap: []byte("admin: {nope: 1}"), Log: func(line string) { said.WriteString(line) }})
	if err == nil || strings.Contains(err.Error(), "nope") || !strings.Contains(said.String(), "nope") {
		t.Errorf("error %v; what Envoy said is to stand in the log only: %s", err, &said)
	}
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: "true"})
	if err == nil || err.Error() != "start Envoy: it ended by itself, without an error" {
		t.Errorf("error %q of a program that ends at once", err)
	}
}

// Which address is taken is told.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text, err := envoy.Bootstrap(envoy.Options{
		Listen: l.Addr().String(), ExtProc: "unix:///nowhere",
		Engines: []envoy.Engine{{Name: "e", URLs: []string{"http://127.0.0.1:1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: find(t), Bootstrap: text, Concurrency: 1})
	if !errors.Is(err, envoy.ErrAddressInUse) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error %v does not tell of %s", err, l.Addr())
	}
}

func TestFind(t *testing.T) {
	env := func(value string) func(string) string {
		return func(string) string { return value }
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := envoy.Find(env(self)); err != nil || got != self {
		t.Errorf("Find with ENVOY_BIN: %s, %v", got, err)
	}
	if _, err := envoy.Find(env("/nowhere/envoy")); err == nil || !strings.Contains(err.Error(), "ENVOY_BIN") {
		t.Errorf("error %v does not name ENVOY_BIN", err)
	}
	t.Setenv("PATH", "")
	t.Chdir(t.TempDir())
	if _, err := envoy.Find(env("")); err == nil || !strings.Contains(err.Error(), "make envoy") {
		t.Errorf("error %v does not say what to do", err)
	}
}

// No Envoy outlives a parent that is killed.
func TestParentDies(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("the parent-death signal is Linux's")
	}
	find(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child := strings.TrimSpace(line)
	if !alive(child) {
		t.Fatalf("the parent says %q, and nobody is there", line)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // an error tells of the kill
	for deadline := time.Now().Add(10 * time.Second); alive(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the Envoy of %s outlives its parent", child)
		}
	}
}

// alive tells whether an Envoy answers at its admin address.
func alive(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// beParent starts an Envoy, tells its admin address and waits to be killed.
func beParent() {
	text, err := someBootstrap()
	if err != nil {
		panic(err)
	}
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		panic(err)
	}
	p, err := envoy.Launch(context.Background(), envoy.LaunchOptions{Binary: binary, Bootstrap: text, Concurrency: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.AdminAddress())
	select {}
}
