package filter

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// gateway is a stand-in for Envoy's loopback listener.
func gateway(t *testing.T, h http.HandlerFunc) *loopback {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	l := newLoopback(strings.TrimPrefix(server.URL, "http://"))
	t.Cleanup(l.close)
	return l
}

// asked makes a call of no content.
func asked(t *testing.T, l *loopback) <-chan engineEvent {
	t.Helper()
	c := l.dial(t.Context(), http.Header{}, target{})
	c.send(c.toEngine(c.target.model.Engine, detour{}), &engine.HTTPRequest{Path: "/"})
	t.Cleanup(c.hangUp)
	return c.events
}

// hear takes the news of a call until its end.
func hear(t *testing.T, events <-chan engineEvent) (status int, body string, err error) {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.header != nil {
				status = e.status
			}
			body += string(e.body)
			if e.end || e.err != nil {
				return status, body, e.err
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no news")
		}
	}
}

func TestLoopbackCall(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	l := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		r.Header.Set("sent", string(sent))
		got <- r
		w.WriteHeader(http.StatusTeapot)
		for _, piece := range []string{"one ", "two ", strings.Repeat("x", 3*loopbackPiece)} {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
	client := passedHeaders(headerMap([]string{
		":method=POST", ":path=/v1/responses", ":authority=api.example", "content-length=5", "content-type=text/plain", "accept-encoding=gzip", "te=trailers",
		"x-request-id=abc", "traceparent=00-1", "authorization=Bearer secret", "x-envoy-attempt-count=1", EngineHeader + "=forged", UpstreamHeader + "=forged", "grpc-timeout=1n", "grpc-encoding=gzip", "grpc-accept-encoding=gzip", "x-data-parallel-rank=1", overrideHeader + "=on", codexHeader + "=on", destinationHeader + "=forged",
	}))
	c := l.dial(t.Context(), client, target{model: Model{Engine: "main"}})
	c.send(c.toEngine(c.target.model.Engine, detour{}), &engine.HTTPRequest{Path: "/generate", Header: []engine.Header{{Name: "x-own", Value: "1"}}, Body: []byte("{}")})
	defer c.hangUp()
	status, body, err := hear(t, c.events)
	if status != http.StatusTeapot || err != nil || body != "one two "+strings.Repeat("x", 3*loopbackPiece) {
		t.Errorf("status %d, %d bytes, %v", status, len(body), err)
	}
	r := <-got
	want := map[string]string{"Sent": "{}", "Content-Type": "application/json", "X-Request-Id": "abc", "Traceparent": "00-1", "Authorization": "Bearer secret", "X-Own": "1"}
	seen := map[string]string{}
	for name := range r.Header {
		if name != "User-Agent" && name != "Content-Length" {
			seen[name] = r.Header.Get(name)
		}
	}
	want[http.CanonicalHeaderKey(EngineHeader)] = "main"
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if r.Host != "api.example" || r.URL.Path != "/generate" || r.Method != http.MethodPost {
		t.Errorf("%s %s of %s", r.Method, r.URL, r.Host)
	}
	client.Set("x-tenant", "a")
	client.Set("x-forwarded-access-token", "secret")
	kept := (&Server{cfg: &Config{TenantHeader: "x-tenant"}}).withoutCredentials(client)
	if diff := cmp.Diff(http.Header{"Host": {"api.example"}, "X-Request-Id": {"abc"}, "Traceparent": {"00-1"}, "X-Tenant": {"a"}, "User-Agent": {""}}, kept); diff != "" {
		t.Errorf("without credentials (-want +got):\n%s", diff)
	}
}

func TestLoopbackCallBreaks(t *testing.T) {
	t.Parallel()
	l := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	status, body, err := hear(t, asked(t, l))
	if status != http.StatusOK || body != "half" || err == nil {
		t.Errorf("status %d, %q, %v", status, body, err)
	}
	nobody := newLoopback("unix://" + filepath.Join(t.TempDir(), "none"))
	if status, _, err := hear(t, asked(t, nobody)); status != 0 || err == nil {
		t.Errorf("without a listener: status %d, %v", status, err)
	}
}

// The replicas that say something are remembered.
func TestLoopbackKnowsReplicas(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status int
		body   string
		want   int
	}{"says something": {200, "x", 1}, "says nothing": {200, "", 0}, "refuses": {500, "x", 0}} {
		l := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(UpstreamHeader, "10.0.0.1:80")
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		})
		if _, _, err := hear(t, asked(t, l)); err != nil {
			t.Fatal(err)
		}
		if got := l.replicas.others("", "", ""); len(got) != answer.want {
			t.Errorf("a replica that %s: %q", name, got)
		}
	}
}

// Whoever hangs up ends the call, and nothing is left behind.
func TestLoopbackHangUp(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	l := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	c := l.dial(context.Background(), http.Header{}, target{})
	c.send(c.toEngine(c.target.model.Engine, detour{}), &engine.HTTPRequest{Path: "/"})
	if e := <-c.events; e.status != http.StatusOK {
		t.Fatalf("%+v", e)
	}
	c.hangUp()
	c.hangUp()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the call goes on")
	}
	if c.events != nil {
		t.Error("there may still be news")
	}
}

func TestLoopbackOverASocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	l := newLoopback("unix://" + path)
	t.Cleanup(l.close)
	if status, body, err := hear(t, asked(t, l)); status != http.StatusOK || body != "hello" || err != nil {
		t.Errorf("status %d, %q, %v", status, body, err)
	}
}

// Where Envoy answers by itself, its answer is not taken for the engine's.
func TestEnvoyAnswersALoopbackExchange(t *testing.T) {
	t.Parallel()
	s := newScript(t, func(c *Config) { c.Loopback = "unix://" + filepath.Join(t.TempDir(), "none") })
	s.post()
	s.body(ask(""), true)
	s.expect()
	if !s.x.local || s.x.remote.events == nil {
		t.Fatal("the call does not go through the loopback listener")
	}
	s.answer(false, ":status=504", "content-type=text/plain")
	s.answerBody("stream timeout", true)
	s.expectLike("immediate 504 the gateway ended the request: Gateway Timeout")
	if s.x.remote.events != nil || !s.x.run.over || !s.x.timers.next().IsZero() {
		t.Error("the call goes on")
	}
}
