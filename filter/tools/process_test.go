package tools_test

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// A process gets PATH, HOME and what is configured, and nothing else.
func TestEnvironment(t *testing.T) {
	t.Setenv("FILTER_SECRET", "not for processes")
	t.Setenv("HOME", "/home/of/tests")
	r := do(t, newClient(t, tools.Options{}), process("server", map[string]string{"OWN": "value"}), "env", "{}")
	for _, want := range []string{"HOME=/home/of/tests", "PATH=" + os.Getenv("PATH"), "OWN=value"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("%s is missing in %s", want, r.Text)
		}
	}
	if n := strings.Count(r.Text, "="); strings.Contains(r.Text, "FILTER_SECRET") || n != 4 {
		t.Errorf("%d variables: %s", n, r.Text)
	}
}

// A process that dies is an error of the call that runs, and the next one has a
// new process.
func TestProcessDies(t *testing.T) {
	c, s := newClient(t, tools.Options{}), process("server", nil)
	for range 3 {
		if r := do(t, c, s, "exit", "{}"); !strings.Contains(r.Error, "may have been done") {
			t.Errorf("error %q (%v)", r.Error, r.Cause)
		}
		wantText(t, do(t, c, s, "echo", "{}"), "{}")
	}
}

// A process that does not read a request holds nobody: neither the job, nor Close.
func TestProcessThatDoesNotRead(t *testing.T) {
	c := tools.New(tools.Options{CallTimeout: 200 * time.Millisecond})
	if r := do(t, c, process("stuck", nil), "x", `{"a":"`+strings.Repeat("x", 1<<20)+`"}`); !strings.Contains(r.Error, "did not answer within 200ms") {
		t.Errorf("error %q (%v)", r.Error, r.Cause)
	}
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	receive(t, closed, "the client is closed")
}

// The children of a process end with it, whether it is closed or dies.
func TestChildren(t *testing.T) {
	for _, ending := range []string{"close", "death"} {
		t.Run(ending, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			c := newClient(t, tools.Options{})
			s := process("server", map[string]string{"ADDRESS": listener.Addr().String()})
			wantText(t, do(t, c, s, "child", "{}"), "started")
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ended := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				close(ended)
			}()
			if ending == "death" {
				do(t, c, s, "exit", "{}")
			} else {
				c.Close()
			}
			receive(t, ended, "the child ends")
		})
	}
}

func TestProcessesThatAreNoServers(t *testing.T) {
	for name, s := range map[string]*tools.Server{
		"no such program":  {Label: "x", Command: []string{"/no/such/program"}, Trusted: true},
		"ends at once":     {Label: "x", Command: []string{"true"}, Trusted: true},
		"no JSON-RPC":      process("noise", nil),
		"nothing to start": {Label: "x", Trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			if r := do(t, newClient(t, tools.Options{}), s, "", ""); !strings.Contains(r.Error, "could not be started, or does not speak MCP") || r.Cause == nil {
				t.Errorf("error %q (%v)", r.Error, r.Cause)
			}
		})
	}
}
