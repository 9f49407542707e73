package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// splitServer answers calls with a text of n bytes. Calls of the tool "halves" get
// the second half of it after release.
type splitServer struct {
	url string
	// Sessions.
	opened atomic.Int32
	// The first half has been sent.
	started chan struct{}
	release chan struct{}
}

func newSplitServer(t *testing.T, n int) *splitServer {
	p := &splitServer{started: make(chan struct{}, 100), release: make(chan struct{})}
	hello := scripted(nil)
	p.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}

		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		if m.Method == "initialize" {
			p.opened.Add(1)
		}

		if m.Method != "tools/call" {
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			hello(w, r)
			return
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s`, m.ID, strings.Repeat("x", n/2))
		if m.Params.Name == "halves" {
			w.(http.Flusher).Flush()
			p.started <- struct{}{}
			select {
			case <-p.release:
			case <-r.Context().Done():
			}
		}

		fmt.Fprintf(w, `%s"}]}}`, strings.Repeat("x", n-n/2))
	}))

	return p
}

// The answers in flight of all servers share one limit. An answer beyond it fails
// with an error that names the limit, other calls of the same session go on, and
// the bytes are released at the end.
func TestInflightBound(t *testing.T) {
	const size = 256 << 10
	c := newClient(t, tools.Options{MaxInflightBytes: size + size/4})
	p := newSplitServer(t, size)
	small := trusted(serve(t, newFixture().streamable()))
	var group sync.WaitGroup
	group.Go(func() { // holds the bytes of half the answer, and then of all of it
		if r := do(t, c, trusted(p.url), "halves", "{}"); r.Error != "" || len(r.Text) != size {
			t.Errorf("%d bytes, error %q (%v)", len(r.Text), r.Error, r.Cause)
		}
	})

	receive(t, p.started, "the first half of the answer")
	waitFor(t, "the first half counts as in flight", func() bool { return tools.Inflight(c) >= size/2 })

	want := fmt.Sprintf(`The answer of the MCP server "fixture" was dropped, because the answers of all servers exceed %d bytes at the moment (tools.max_inflight_bytes). Try again later. The call may have been executed.`, size+size/4)
	if r := do(t, c, trusted(p.url), "whole", "{}"); r.Error != want {
		t.Errorf("error %q (%v)", r.Error, r.Cause)
	}

	wantText(t, do(t, c, small, "echo", `{"a":1}`), `{"a":1}`)
	close(p.release)
	group.Wait()

	for range 3 {
		if r := do(t, c, trusted(p.url), "whole", "{}"); r.Error != "" {
			t.Errorf("error %q (%v)", r.Error, r.Cause)
		}
	}

	if n := p.opened.Load(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}

	waitFor(t, "all bytes are released", func() bool { return tools.Inflight(c) == 0 })
}

// Bytes on an event stream or from a process count as in flight, whether they are
// used or not.
func TestInflightOfStreams(t *testing.T) {
	const limit = 64 << 10
	for _, tt := range []struct {
		name   string
		server func(*testing.T) *tools.Server
	}{
		{"sse", func(t *testing.T) *tools.Server {
			s := trusted(serve(t, newFixture().sse()))
			s.Transport = tools.TransportSSE
			return s
		}},
		{"stdio", func(*testing.T) *tools.Server { return process("server", nil) }},
		{"http", func(t *testing.T) *tools.Server { return trusted(serve(t, newFixture().streamable())) }},
		{"json", func(t *testing.T) *tools.Server {
			f := newFixture()
			return trusted(serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.server }, &mcp.StreamableHTTPOptions{JSONResponse: true})))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, s := newClient(t, tools.Options{MaxInflightBytes: limit}), tt.server(t)
			some := fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("x", limit/2))
			for range 5 { // each answer fits once the one before is released
				wantText(t, do(t, c, s, "echo", some), some)
			}

			if r := do(t, c, s, "echo", fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("x", 2*limit))); !strings.Contains(r.Error, "tools.max_inflight_bytes") {
				t.Errorf("error %q (%v)", r.Error, r.Cause)
			}

			wantText(t, do(t, c, s, "echo", some), some)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			c.Do(ctx, tools.Job{Server: s, Tool: "echo", Arguments: some})
			c.Close()
			if n := tools.Inflight(c); n != 0 {
				t.Errorf("%d bytes are still in flight", n)
			}
		})
	}
}
