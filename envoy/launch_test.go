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

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/envoy"
)

const parentRole = "ENVOY_HARMONY_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		beParent()
	}
	goleak.VerifyTestMain(m)
}

// find returns the path of Envoy. Without it the test fails.
func find(t *testing.T) string {
	t.Helper()
	path, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func minimalBootstrap() ([]byte, error) {
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
			if options.ExtProcTLS != nil {
				dir, ca := t.TempDir(), pki.NewCA(t, "test")
				pair := ca.Leaf(t, "envoy")
				pki.Write(t, dir, map[string][]byte{"ca.crt": ca.PEM, "tls.crt": pair.Cert, "tls.key": pair.Key})
				options.ExtProcTLS = &envoy.FilterTLS{CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
				options.LoopbackTLS = &envoy.ListenerTLS{ClientCAFile: options.ExtProcTLS.CAFile, CertFile: options.ExtProcTLS.CertFile, KeyFile: options.ExtProcTLS.KeyFile}
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
	text, err := minimalBootstrap()
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
		t.Error("Stop returned before the process had ended")
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections", address)
	}
}

func TestLaunchFails(t *testing.T) {
	_, err := envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: find(t), Bootstrap: []byte("admin: {nope: 1}")})
	if err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("error %v lacks Envoy's log", err)
	}
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: filepath.Join(t.TempDir(), "none")})
	if err == nil {
		t.Error("a missing binary was started")
	}
	var log strings.Builder
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: find(t), Bootstrap: []byte("admin: {nope: 1}"), Log: func(line string) { log.WriteString(line) }})
	if err == nil || strings.Contains(err.Error(), "nope") || !strings.Contains(log.String(), "nope") {
		t.Errorf("error %v; want Envoy's messages in the log only: %s", err, &log)
	}
	_, err = envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: "true"})
	if err == nil || err.Error() != "start Envoy: the process exited without an error" {
		t.Errorf("error %q of a program that exits at once", err)
	}
}

// The error names the address that is in use.
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
		t.Errorf("error %v does not name %s", err, l.Addr())
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
		t.Errorf("error %v does not state what to do", err)
	}
}

// Envoy ends if its parent is killed.
func TestParentDies(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("parent-death signals exist only on Linux")
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
		t.Fatalf("no Envoy answers at the address %q that the parent reports", line)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // the error reports the kill
	for deadline := time.Now().Add(5 * time.Minute); alive(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the Envoy of %s outlives its parent", child)
		}
	}
}

// alive reports whether an admin address accepts connections.
func alive(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// beParent starts an Envoy, prints its admin address and waits to be killed.
func beParent() {
	text, err := minimalBootstrap()
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
