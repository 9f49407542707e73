package operations

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// hangsAt is a reply of an engine that stops in the middle of its text, and stays
// connected.
const hangsAt = "NOTHINK\nWORDS 100\nSIM fault=hang@20"

// TestDrainTimeIsOver ends a filter by SIGTERM while replies are made that take
// longer than its drain: each client gets an error that says what to do, in the form
// of its API, and the process ends, though requests hang that it cannot answer.
func TestDrainTimeIsOver(t *testing.T) {
	log, tools, upstream := stack.LogOf(t), stack.NewToolServer(t), &stack.Upstream{}
	sim := stack.StartSim(t, log)
	p := stack.ServeProgram(t, log, "--engine", "vllm="+sim, "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(t), "loopback"),
		"--set", "drain_timeout=300ms", "--set", tools.Set(t))
	d := p.Envoy(t, p.Bootstrap(t, "--upstream", stack.ServeUpstream(t, upstream)))
	d.Sim = sim

	hanging, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	upstream.Handle(func(http.ResponseWriter, *http.Request) {
		close(hanging)
		<-release
	})

	var clients sync.WaitGroup
	whole := func(id, path, body string, status int) {
		clients.Go(func() {
			resp, err := d.Client.Do(d.Request(t, path, body, id))
			if err != nil {
				t.Errorf("%s: %v", id, err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if message := gjson.GetBytes(text, "error.message").Str; err != nil || resp.StatusCode != status || !strings.Contains(message, "shut down") {
				t.Errorf("%s: status %d, %v, %s", id, resp.StatusCode, err, text)
			}
		})
	}

	ends := 0
	for _, a := range stack.FaultAPIs {
		s := d.Stream(t, a, stack.VLLMModel, hangsAt)
		clients.Go(func() {
			text, message, err := s.End()
			if err != nil || !strings.Contains(message, "shut down") || !strings.Contains(message, "server error") || !strings.Contains(message, "connection") {
				t.Errorf("%s: %v, error %q, in\n%s", a.Name, err, message, text)
			}
		})
		status := map[bool]int{true: 529, false: 503}[a.Name == "messages"]
		whole("whole-"+a.Name, a.Path, a.Body(stack.VLLMModel, hangsAt, false), status)
		whole("late-"+a.Name, a.Path, a.Body(stack.VLLMModel, "SAY late\nSIM first=1h", false), status)
		d.AwaitEngine(t, "whole-"+a.Name, stack.StateRunning)
		d.AwaitEngine(t, "late-"+a.Name, stack.StateRunning)
		ends += 3
	}

	whole("tool", "/v1/responses", `{"model":"`+stack.VLLMModel+`","input":"NOTHINK\nCALL docs.hang {}","tools":[`+stack.DocsTool+`]}`, 503)
	stack.Receive(t, tools.Started, "the call of the tool")
	ends++

	clients.Go(func() { // no reply of the filter: it is reset
		if resp, err := d.Client.Do(d.Request(t, "/v1/chat/completions", `{"model":"some-other-model"}`, "other")); err == nil {
			resp.Body.Close()
			if resp.StatusCode < http.StatusInternalServerError {
				t.Errorf("the request that passes through: status %d", resp.StatusCode)
			}
		}
	})
	stack.Receive(t, hanging, "the request that passes through")

	readsNothing(t, d, "NOTHINK\nWORDS 100000", "deaf")
	d.AwaitEngine(t, "deaf", stack.StateRunning)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	clients.Wait()
	stack.Receive(t, p.Ended, "the end of the process")
	if p.Exit != 0 {
		t.Errorf("exit status %d", p.Exit)
	}

	if got := log.Outcomes(); got["drain"] < ends || got["canceled"] > 0 || got["failed"] > 0 {
		t.Errorf("logged outcomes: %v, want %d of the drain", got, ends)
	}
}

// readsNothing sends a chat request and reads nothing of the reply but its
// beginning, until the test ends.
func readsNothing(t *testing.T, d *stack.Dataplane, content, id string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := stack.FaultAPIs[0].Body(stack.VLLMModel, content, true)
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	return conn
}
