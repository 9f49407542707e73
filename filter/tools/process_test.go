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
			if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
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
			receive(t, ended, "the child ends")
		})
	}
}

// There are no more processes than allowed, those that are being ended among them;
// one that nobody uses makes room, and servers that are none need no room.
func TestMaxProcesses(t *testing.T) {
	places := t.TempDir()
	c := newClient(t, tools.Options{MaxProcesses: 2})
	server := func(session string) *tools.Server {
		s := process("counted", map[string]string{"PLACES": places})
		s.Session = session
		return s
	}
	for _, session := range []string{"a", "b", "c", "a", "d"} {
		wantText(t, do(t, c, server(session), "echo", "{}"), "{}")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group sync.WaitGroup
	for _, session := range []string{"d", "e"} { // all that there may be are in use
		group.Go(func() {
			for ctx.Err() == nil { // there may be no place at first
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
	if taken, err := os.ReadDir(places); len(taken) != 2 || err != nil {
		t.Errorf("%d processes at one time, want 2: %v", len(taken), err)
	}
}

// A process that ends at once is explained by what it said; a program that is
// missing is told when the filter starts.
func TestProcessThatEndsAtOnce(t *testing.T) {
	const secret = "variable-secret"
	s := process("broken", map[string]string{"TOKEN": secret})
	r := do(t, newClient(t, tools.Options{}), s, "", "")
	if !strings.Contains(r.Error, "could not be started") || strings.Contains(r.Error, "no such directory") {
		t.Errorf("error %q", r.Error)
	}
	if cause := fmt.Sprint(r.Cause); !strings.HasSuffix(cause, "after the process said: no such directory, [hidden]") {
		t.Errorf("cause %s", cause)
	}
	log, out := debugLog()
	newClient(t, tools.Options{Log: log, Servers: []tools.Server{
		{Label: "there", Command: []string{os.Args[0]}, Trusted: true},
		{Label: "missing", Command: []string{"/no/such/program"}, Trusted: true},
		{Label: "remote", URL: "https://a", Trusted: true},
	}})
	if text := out.String(); strings.Count(text, "level=warning") != 1 || !strings.Contains(text, "/no/such/program") || !strings.Contains(text, "mcp_server=missing") {
		t.Errorf("the log has\n%s", text)
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
