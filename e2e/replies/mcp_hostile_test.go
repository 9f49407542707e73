package replies

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// hostileServer is an MCP server with one tool, "search", that answers one of its
// methods as it likes.
func hostileServer(t *testing.T, method string, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := gjson.ParseBytes(body)

		result := `{}`
		switch m.Get("method").Str {
		case method:
			w.Header().Set("X-Id", m.Get("id").Raw)
			answer(w, r)
			return
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`
		case "tools/list":
			result = `{"tools":[` + listedTool("search", `{"type":"object"}`) + `]}`
		case "tools/call":
			result = `{"content":[{"type":"text","text":"found"}]}`
		}

		if !m.Get("id").Exists() {
			w.WriteHeader(http.StatusAccepted)
			return
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.Get("id").Raw, result)
	}))

	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// hostileAnswers are the answers, by what they do.
func hostileAnswers(elsewhere string) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"hangs in the answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"closes at once": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"closes in the answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"is endless": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+w.Header().Get("X-Id")+`,"result":{"content":[{"type":"text","text":"`)
			for piece := strings.Repeat("x", 1<<16); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		},
		"has endless events": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`+"\n\n"); err != nil {
					return
				}
			}
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		},
		"is not JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>\xff\x00") },
		"is another id": func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, `{"jsonrpc":"2.0","id":"nobody","result":{}}`)
		},
		"is an array":    func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `[[[[[]]]]]`) },
		"is very nested": func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, strings.Repeat(`{"result":`, 100_000)) },
	}
}

func answerJSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}

// Whatever an MCP server answers, and to whatever, the model gets no more than an
// error in place of the tool or of its result: the reply has its end, and other
// servers work.
func TestMCPHostileServers(t *testing.T) {
	var reached atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(elsewhere.Close)
	type hostile struct{ name, label string }
	var all []hostile

	tools := stack.NewToolServer(t)
	d := stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
		c.Tools.CallTimeout = config.Duration{Duration: time.Second}
		c.Tools.ListTimeout = config.Duration{Duration: time.Second}
		c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: "docs", URL: tools.URL})
		for _, method := range []string{"initialize", "tools/list", "tools/call"} {
			for what, answer := range hostileAnswers(elsewhere.URL) {
				label := fmt.Sprint("s", len(all))
				all = append(all, hostile{method + " " + what, label})
				c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: label, URL: hostileServer(t, method, answer)})
			}
		}
	}})

	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			c := &stack.ResponsesClient{Dataplane: d, Stream: true}
			r := c.Create(t, "completed", map[string]any{
				"input": "NOTHINK\nCALL " + h.label + ".search {\"q\":\"x\"}\nCALL docs.search {\"q\":\"one\"}\nSAY done",
				"tools": json.RawMessage(`[{"type":"mcp","server_label":"` + h.label + `"},` + stack.DocsTool + `]`),
			})

			prompts := c.Prompts(t)
			if last := prompts[len(prompts)-1]; !strings.Contains(last, "found one") || strings.Contains(last, strings.Repeat("x", 1<<20)) {
				t.Errorf("the other tool has not answered: %.2000s", last)
			}
			if got := r.Get(`output.#(server_label=="` + h.label + `")`); !got.Exists() || got.Get("error").Type == gjson.Null && got.Get("type").Str == "mcp_call" {
				t.Errorf("the response does not say what has failed: %.2000s", r.Get("output").Raw)
			}
		})
	}

	t.Cleanup(func() {
		if n := reached.Load(); n > 0 {
			t.Errorf("a redirect was followed %d times", n)
		}
	})
}
