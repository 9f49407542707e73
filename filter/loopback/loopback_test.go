package loopback

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

func TestCall(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	client := newTestGateway(t, config.Defaults(), func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		r.Header.Set("sent", string(sent))
		got <- r
		w.WriteHeader(http.StatusTeapot)
		for _, piece := range []string{"one ", "two ", strings.Repeat("x", 24<<10)} {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
	forwarded := http.Header{"Host": {"api.example"}, "X-Request-Id": {"abc"}, "Traceparent": {"00-1"}, "Authorization": {"Bearer secret"}, "User-Agent": {""}}
	unchanged := forwarded.Clone()
	c := client.Dial(t.Context(), forwarded, run.Target{Engine: "main"}).(*Calls)
	c.send(&engine.HTTPRequest{Path: "/generate", Header: []engine.Header{{Name: "x-own", Value: "1"}}, Body: []byte("{}")})
	defer c.Cancel()
	status, body, _, err := answerOf(t, c.Events())
	if status != http.StatusTeapot || err != nil || body != "one two "+strings.Repeat("x", 24<<10) {
		t.Errorf("status %d, %d bytes, %v", status, len(body), err)
	}
	r := <-got
	want := map[string]string{"Sent": "{}", "Content-Type": "application/json", "X-Request-Id": "abc", "Traceparent": "00-1", "Authorization": "Bearer secret", "X-Own": "1"}
	want[http.CanonicalHeaderKey(header.Engine)] = "main"
	seen := map[string]string{}
	for name := range r.Header {
		if name != "Content-Length" {
			seen[name] = r.Header.Get(name)
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if r.Host != "api.example" || r.URL.Path != "/generate" || r.Method != http.MethodPost {
		t.Errorf("%s %s of %s", r.Method, r.URL, r.Host)
	}
	if diff := cmp.Diff(unchanged, forwarded); diff != "" {
		t.Errorf("a call changes the headers of the next one (-before +after):\n%s", diff)
	}
}

func TestCallBreaks(t *testing.T) {
	t.Parallel()
	client := newTestGateway(t, config.Defaults(), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	status, body, _, err := answerOf(t, call(t, client))
	if status != http.StatusOK || body != "half" || err == nil {
		t.Errorf("status %d, %q, %v", status, body, err)
	}
	nobody := newTestClient(t, config.Defaults(), "unix://"+filepath.Join(t.TempDir(), "none"))
	if status, _, _, err := answerOf(t, call(t, nobody)); status != 0 || err == nil {
		t.Errorf("without a listener: status %d, %v", status, err)
	}
}

// The replicas that answer are remembered.
func TestKnownReplicas(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status int
		body   string
		want   int
	}{"with an answer": {200, "x", 1}, "with an empty answer": {200, "", 0}, "with an error": {500, "x", 0}} {
		client := newTestGateway(t, config.Defaults(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(header.Upstream, "10.0.0.1:80")
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		})
		if _, _, _, err := answerOf(t, call(t, client)); err != nil {
			t.Fatal(err)
		}
		if got := client.replicas.others("", "", ""); len(got) != answer.want {
			t.Errorf("a replica %s: %q", name, got)
		}
	}
}

// The engine sees that a call is canceled, and nothing of it is left.
func TestCancel(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	client := newTestGateway(t, config.Defaults(), func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	c := client.Dial(context.Background(), http.Header{}, run.Target{}).(*Calls)
	c.send(&engine.HTTPRequest{Path: "/"})
	if e, _ := (<-c.Events()).Source.Next(); e.Status != http.StatusOK {
		t.Fatalf("%+v", e)
	}
	c.Cancel()
	c.Cancel()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the call goes on")
	}
	if c.Events() != nil {
		t.Error("there may still be events")
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	client := newTestClient(t, config.Defaults(), "unix://"+path)
	if status, body, _, err := answerOf(t, call(t, client)); status != http.StatusOK || body != "hello" || err != nil {
		t.Errorf("status %d, %q, %v", status, body, err)
	}
}

// A request that is no model call has one answer, of bounded size.
func TestGetAndAsk(t *testing.T) {
	t.Parallel()
	client := newTestGateway(t, config.Defaults(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("trailer", "grpc-status")
		w.Header().Set("x-host", r.Host)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
		w.Header().Set("grpc-status", "5")
	})
	status, body, err := client.Get(t.Context(), http.Header{"Host": {"api.example"}}, "/models", 11)
	if status != http.StatusAccepted || string(body) != "GET /models" || err != nil {
		t.Errorf("status %d, %q, %v", status, body, err)
	}
	if status, _, err := client.Get(t.Context(), http.Header{}, "/models", 10); status != http.StatusAccepted || !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: status %d, %v", status, err)
	}
	foreign, err := client.Ask(t.Context(), http.Header{"Host": {"x@y"}}, &engine.HTTPRequest{Path: "/info"}, 100)
	if err != nil || foreign.Field("x-host") == "" || foreign.Field("x-host") == "x@y" {
		t.Errorf("a host with user information: %+v, %v", foreign, err)
	}
	a, err := client.Ask(t.Context(), http.Header{"Host": {"api.example"}}, &engine.HTTPRequest{Path: "/info"}, 100)
	if err != nil || a.Status != http.StatusAccepted || string(a.Body) != "POST /info" || a.Field("grpc-status") != "5" || a.Field("x-host") != "api.example" || a.Header("grpc-status") != "" {
		t.Errorf("%+v, %v", a, err)
	}
}
