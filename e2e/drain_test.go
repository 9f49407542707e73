package e2e

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
)

// hangsAt is a reply of an engine that stops in the middle of its text, and stays
// connected.
const hangsAt = "NOTHINK\nWORDS 100\nSIM fault=hang@20"

// TestDrainTimeIsOver ends a filter by SIGTERM while replies are made that take
// longer than its drain: each client gets an error that says what to do, in the form
// of its API, and the process ends, though requests hang that it cannot answer.
func TestDrainTimeIsOver(t *testing.T) {
	log, tools, upstream := logOf(t), newToolServer(t), &upstream{}
	sim := startSim(t, log)
	p := serveProgram(t, log, "--engine", "vllm="+sim, "--set", "loopback=unix://"+filepath.Join(socketDir(t), "loopback"),
		"--set", "drain_timeout=300ms", "--set", tools.set(t))
	d := p.envoy(t, p.bootstrap(t, "--upstream", serveUpstream(t, upstream)))
	d.sim = sim
	hanging, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	upstream.handle(func(http.ResponseWriter, *http.Request) {
		close(hanging)
		<-release
	})
	var clients sync.WaitGroup
	whole := func(id, path, body string, status int) {
		clients.Go(func() {
			resp, err := d.client.Do(d.request(t, path, body, id))
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
	for _, a := range faultAPIs {
		s := d.stream(t, a, vllmModel, hangsAt)
		clients.Go(func() {
			text, message, err := s.end()
			if err != nil || !strings.Contains(message, "shut down") || !strings.Contains(message, "server error") || !strings.Contains(message, "connection") {
				t.Errorf("%s: %v, error %q, in\n%s", a.name, err, message, text)
			}
		})
		status := map[bool]int{true: 529, false: 503}[a.name == "messages"]
		whole("whole-"+a.name, a.path, a.body(vllmModel, hangsAt, false), status)
		whole("late-"+a.name, a.path, a.body(vllmModel, "SAY late\nSIM first=1h", false), status)
		d.awaitEngine(t, "whole-"+a.name, stateRunning)
		d.awaitEngine(t, "late-"+a.name, stateRunning)
		ends += 3
	}
	whole("tool", "/v1/responses", `{"model":"`+vllmModel+`","input":"NOTHINK\nCALL docs.hang {}","tools":[`+docsTool+`]}`, 503)
	receive(t, tools.started, "the call of the tool")
	ends++
	clients.Go(func() { // no reply of the filter: it is reset
		if resp, err := d.client.Do(d.request(t, "/v1/chat/completions", `{"model":"some-other-model"}`, "other")); err == nil {
			resp.Body.Close()
			if resp.StatusCode < http.StatusInternalServerError {
				t.Errorf("the request that passes through: status %d", resp.StatusCode)
			}
		}
	})
	receive(t, hanging, "the request that passes through")
	d.readsNothing(t, "NOTHINK\nWORDS 100000", "deaf")
	d.awaitEngine(t, "deaf", stateRunning)
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	receive(t, p.ended, "the end of the process")
	if p.exit != 0 {
		t.Errorf("exit status %d", p.exit)
	}
	if got := log.outcomes(); got["drain"] < ends || got["canceled"] > 0 || got["failed"] > 0 {
		t.Errorf("logged outcomes: %v, want %d of the drain", got, ends)
	}
}

// request is a request with an id.
func (d *dataplane) request(t *testing.T, path, body, id string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	return req
}

// readsNothing sends a chat request and reads nothing of the reply but its
// beginning, until the test ends.
func (d *dataplane) readsNothing(t *testing.T, content, id string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := faultAPIs[0].body(vllmModel, content, true)
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	return conn
}
