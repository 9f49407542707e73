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

// pieces is a server that answers calls with a text of n bytes; those of the tool
// "halves" with half of it at once, and the rest when they are let go on.
type pieces struct {
	url     string
	opened  atomic.Int32  // sessions
	begun   chan struct{} // the first half is on its way
	release chan struct{}
}

func newPieces(t *testing.T, n int) *pieces {
	p := &pieces{begun: make(chan struct{}, 100), release: make(chan struct{})}
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
			p.begun <- struct{}{}
			select {
			case <-p.release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprintf(w, `%s"}]}}`, strings.Repeat("x", n-n/2))
	}))
	return p
}

// The answers that are being read at one time are bounded for all servers together.
// One that has no room is refused by name, the other calls of its session go on, and
// what was held is given back.
func TestInflightBound(t *testing.T) {
	const size = 256 << 10
	c := newClient(t, tools.Options{MaxInflightBytes: size + size/4})
	p := newPieces(t, size)
	small := trusted(serve(t, newFixture().streamable()))
	var group sync.WaitGroup
	group.Go(func() { // holds half of its answer, and then all of it
		if r := do(t, c, trusted(p.url), "halves", "{}"); r.Error != "" || len(r.Text) != size {
			t.Errorf("%d bytes, error %q (%v)", len(r.Text), r.Error, r.Cause)
		}
	})
	receive(t, p.begun, "the first answer begins")
	waitFor(t, "the half is held", func() bool { return tools.Inflight(c) >= size/2 })

	want := fmt.Sprintf(`There is no room for the answer of the MCP server "fixture": those of all servers have more than %d bytes at the moment (tools.max_inflight_bytes). What was asked for may have been done.`, size+size/4)
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
	waitFor(t, "all is given back", func() bool { return tools.Inflight(c) == 0 })
}

// What comes on a stream, or through a process' pipe, counts as well, whatever
// becomes of it.
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
			for range 5 { // each has room once the one before it is done
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
				t.Errorf("%d bytes are still held", n)
			}
		})
	}
}
