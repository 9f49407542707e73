package tools_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// A process gets PATH, HOME and the configured variables, and no others.
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

// If a process dies, the running call fails, and the next one starts a new process.
func TestProcessDies(t *testing.T) {
	c, s := newClient(t, tools.Options{}), process("server", nil)
	for range 3 {
		if r := do(t, c, s, "exit", "{}"); !strings.Contains(r.Error, "may have been executed") {
			t.Errorf("error %q (%v)", r.Error, r.Cause)
		}
		wantText(t, do(t, c, s, "echo", "{}"), "{}")
	}
}

// A process that does not read its input delays neither the job nor Close.
func TestProcessStopsReading(t *testing.T) {
	c := tools.New(tools.Options{ListTimeout: patience, CallTimeout: 200 * time.Millisecond})
	if r := do(t, c, process("stopsReading", nil), "x", `{"a":"`+strings.Repeat("x", 1<<20)+`"}`); !strings.Contains(r.Error, "did not answer within 200ms") {
		t.Errorf("error %q (%v)", r.Error, r.Cause)
	}
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	receive(t, closed, "Close")
}

// The children of a process end with it, when it is closed and when it dies.
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
			if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}

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

			receive(t, ended, "the end of the child")
		})
	}
}

// MaxProcesses limits running processes, including those that are being stopped. An
// idle process makes room. Servers that are not processes are not limited.
func TestMaxProcesses(t *testing.T) {
	locks := t.TempDir()
	c := newClient(t, tools.Options{MaxProcesses: 2})
	server := func(session string) *tools.Server {
		s := process("locksFile", map[string]string{"LOCKS": locks})
		s.Session = session
		return s
	}

	for _, session := range []string{"a", "b", "c", "a", "d"} {
		wantText(t, do(t, c, server(session), "echo", "{}"), "{}")
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group sync.WaitGroup

	for _, session := range []string{"d", "e"} { // all processes are in use
		group.Go(func() {
			for ctx.Err() == nil { // a process that is being stopped may still count
				c.Do(ctx, tools.Job{Server: server(session), Tool: "wait"})
			}
		})
	}

	waitFor(t, "two processes are in use", func() bool {
		r := do(t, c, server("f"), "echo", "{}")
		return strings.Contains(r.Error, "Too many processes of MCP servers are in use (tools.max_processes)")
	})

	f := newFixture()
	wantText(t, do(t, c, trusted(serve(t, f.streamable())), "echo", "{}"), "{}")
	cancel()
	group.Wait()
	if files, err := os.ReadDir(locks); len(files) != 2 || err != nil {
		t.Errorf("%d processes at one time, want 2: %v", len(files), err)
	}
}

// If a process exits at once, the last line of its stderr is in the error's cause.
// A program that is not installed is logged at start.
func TestProcessExitsAtOnce(t *testing.T) {
	const secret = "variable-secret"
	s := process("exits", map[string]string{"TOKEN": secret})
	r := do(t, newClient(t, tools.Options{}), s, "", "")
	if !strings.Contains(r.Error, "could not be started") || strings.Contains(r.Error, "no such directory") {
		t.Errorf("error %q", r.Error)
	}
	if cause := fmt.Sprint(r.Cause); !strings.HasSuffix(cause, "last line of stderr: no such directory, [hidden]") {
		t.Errorf("cause %s", cause)
	}
	log, out := debugLog()
	newClient(t, tools.Options{Log: log, Servers: []tools.Server{
		{Label: "installed", Command: []string{os.Args[0]}, Trusted: true},
		{Label: "missing", Command: []string{"/no/such/program"}, Trusted: true},
		{Label: "remote", URL: "https://a", Trusted: true},
	}})
	if text := out.String(); strings.Count(text, "level=warning") != 1 || !strings.Contains(text, "/no/such/program") || !strings.Contains(text, "mcp_server=missing") {
		t.Errorf("log:\n%s", text)
	}
}

func TestProcessIsNoServer(t *testing.T) {
	for name, s := range map[string]*tools.Server{
		"no such program":  {Label: "x", Command: []string{"/no/such/program"}, Trusted: true},
		"ends at once":     {Label: "x", Command: []string{"true"}, Trusted: true},
		"no JSON-RPC":      process("noJSONRPC", nil),
		"nothing to start": {Label: "x", Trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			if r := do(t, newClient(t, tools.Options{}), s, "", ""); !strings.Contains(r.Error, "could not be started, or does not speak MCP") || r.Cause == nil {
				t.Errorf("error %q (%v)", r.Error, r.Cause)
			}
		})
	}
}
