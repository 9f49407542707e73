package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// api is a server with one answer.
func api(t *testing.T, status int, contentType, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func TestAsk(t *testing.T) {
	const (
		events = "text/event-stream"
		hello  = `data: {"choices":[{"delta":{"reasoning_content":"Hm."}}]}` + "\n\n: keep-alive\n\n" +
			`data: {"choices":[{"delta":{"content":"Hello "}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"content":"world"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	)
	for _, tt := range []struct {
		name           string
		status         int
		kind, body     string
		flags          []string
		exit           int
		stdout, stderr string
	}{
		{"text", 200, events, hello, nil, 0, "Hello world\n", ""},
		{"reasoning", 200, events, hello, []string{"--reasoning"}, 0, "Hello world\n", "Hm."},
		{"no text", 200, events, `data: {"choices":[{"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n", nil, 1, "\n", `the answer has no text (finish reason "length")`},
		{"error in the stream", 200, events, `data: {"error":{"message":"engine is gone"}}` + "\n\ndata: [DONE]\n\n", nil, 1, "", "the stream ended with an error: engine is gone"},
		{"broken stream", 200, events, `data: {"choices":[{"delta":{"content":"He"}}]}` + "\n\n", nil, 1, "He", "without [DONE]"},
		{"no chunk", 200, events, "data: nope\n\n", nil, 1, "", "an event is no chunk of Chat Completions"},
		{"no stream", 200, "text/html", "<p>Hello", nil, 1, "", `answered with "text/html", not with a stream of events`},
		{"key", 401, "application/json", `{"error":{"message":"wrong key"}}`, nil, 1, "", "401 Unauthorized: wrong key (set OPENAI_API_KEY"},
		{"route", 404, "text/plain", "nothing here\n", nil, 1, "", "404 Not Found: nothing here (is there a route"},
		{"route of an engine", 404, "application/json", `{"error":{"message":"no path","code":404}}`, nil, 1, "", "404 Not Found: no path (is there a route"},
		{"model", 404, "application/json", `{"error":{"message":"no such model","code":"model_not_found"}}`, []string{"--wait", "1h"}, 1, "", "404 Not Found: no such model\n"},
		{"tenant", 401, "application/json", `{"error":{"message":"no tenant","code":"tenant_missing"}}`, nil, 1, "", "401 Unauthorized: no tenant (set it with --header)\n"},
		{"filter", 503, "text/plain", "", nil, 1, "", "503 Service Unavailable: no message (Envoy cannot reach the filter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"ask", "--url", api(t, tt.status, tt.kind, tt.body)}, append(tt.flags, "Hello")...)
			exit, stdout, stderr := execute(t, nil, args...)
			if exit != tt.exit || stdout != tt.stdout || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit status %d, output %q, errors %q; want %d, %q and %q in the errors", exit, stdout, stderr, tt.exit, tt.stdout, tt.stderr)
			}
		})
	}
}

// The request has the flags, and the variables of OpenAI's clients.
func TestAskRequest(t *testing.T) {
	var got struct {
		Model    string
		Stream   bool
		Messages []struct{ Role, Content string }
	}
	var header http.Header
	var path, host string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		header, path, host = r.Header.Clone(), r.URL.Path, r.Host
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"yes"}}]}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	env := map[string]string{"OPENAI_BASE_URL": s.URL + "/v1/", "OPENAI_API_KEY": "secret"}
	if exit, _, stderr := execute(t, env, "ask", "--model", "m", "--header", "x-tenant=a=b", "--header", "Host=api.example.com", "Are", "you there?"); exit != 0 {
		t.Fatalf("exit status %d: %s", exit, stderr)
	}
	want := []string{"/v1/chat/completions", "api.example.com", "Bearer secret", "a=b", "m", "user", "Are you there?"}
	have := []string{path, host, header.Get("Authorization"), header.Get("X-Tenant"), got.Model, got.Messages[0].Role, got.Messages[0].Content}
	if diff := cmp.Diff(want, have); diff != "" || !got.Stream {
		t.Errorf("the request, with stream %v (-want +got):\n%s", got.Stream, diff)
	}
}

// Addresses that lead nowhere are errors that say what to change.
func TestAskAddresses(t *testing.T) {
	for url, want := range map[string]string{
		"127.0.0.1:10000/v1":    "--url 127.0.0.1:10000/v1: write http:// or https:// before it",
		"localhost:10000/v1":    "--url localhost:10000/v1: write http:// or https:// before it",
		"http://127.0.0.1:1/v1": "connection refused (nothing listens there: is --url what run has printed as ready?)",
	} {
		if exit, _, stderr := execute(t, nil, "ask", "--url", url, "Hello"); exit == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, errors %q, want %q in them", url, exit, stderr, want)
		}
	}
}

// In a cluster the error names the commands that show the logs.
func TestAskInKubernetes(t *testing.T) {
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	_, _, stderr := execute(t, env, "ask", "--url", api(t, 503, "text/plain", ""), "Hello")
	if want := "kubectl logs --all-containers --selector app.kubernetes.io/component=filter"; !strings.Contains(stderr, want) {
		t.Errorf("errors %q, want %q in them", stderr, want)
	}
}

// With --wait an error that may go away is tried again, another one is not. One that stays the
// same is printed once.
func TestAskWaits(t *testing.T) {
	defer func(d time.Duration) { askPause = d }(askPause)
	askPause = time.Millisecond
	statuses := []int{404, 404, 404, 503, 503, 400}
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(statuses[calls])
		calls++
	}))
	t.Cleanup(s.Close)
	exit, _, stderr := execute(t, nil, "ask", "--url", s.URL, "--wait", "1h", "Hello")
	if exit != 1 || calls != 6 || strings.Count(stderr, "; asking again every 1ms\n") != 2 || strings.Count(stderr, "\n") != 3 || !strings.Contains(stderr, "400 Bad Request") {
		t.Errorf("exit status %d after %d calls: %s", exit, calls, stderr)
	}
}
