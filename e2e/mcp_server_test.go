package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter"
)

// stdioServer is the variable that makes the test binary an MCP server on
// standard input and output.
const stdioServer = "E2E_MCP_STDIO"

// serveStdio serves the tools of a process, if this is one.
func serveStdio() {
	if os.Getenv(stdioServer) == "" {
		return
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "process", Version: "1"}, nil)
	addTool(s, "reverse", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text := ""
		for _, r := range gjson.GetBytes(q.Params.Arguments, "text").Str {
			text = string(r) + text
		}
		return toolText(text), nil
	})
	addTool(s, "exit", `{}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return toolText("nobody hears this"), nil
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
	os.Exit(0)
}

// process is the configuration of that server.
func process(t *testing.T, label string) filter.ToolServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return filter.ToolServer{Label: label, Command: []string{self}, Env: map[string]string{stdioServer: "1"}}
}

// toolServer is an MCP server over streamable HTTP with a few tools, and what it
// has seen.
type toolServer struct {
	*httptest.Server
	mu      sync.Mutex
	methods []string // of requests, with the tool that is called
	headers []http.Header
	begun   chan string   // a call of hang or meet, with its argument q
	ended   chan error    // why a call of hang has ended
	free    chan struct{} // lets calls of meet go on
	over    chan struct{} // the test is
}

func newToolServer(t testing.TB) *toolServer {
	s := &toolServer{begun: make(chan string, 100), ended: make(chan error, 100), free: make(chan struct{}), over: make(chan struct{})}
	server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
	addTool(server, "search", `{"readOnlyHint":true}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return toolText("found " + gjson.GetBytes(q.Params.Arguments, "q").Str), nil
	})
	addTool(server, "delete-all", `{"destructiveHint":true}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := toolText("It is forbidden.")
		r.IsError = true
		return r, nil
	})
	addTool(server, "hang", `{}`, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.begun <- gjson.GetBytes(q.Params.Arguments, "q").Str
		select {
		case <-ctx.Done():
		case <-s.over:
		}
		s.ended <- ctx.Err()
		return nil, ctx.Err()
	})
	addTool(server, "meet", `{}`, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name := gjson.GetBytes(q.Params.Arguments, "q").Str
		s.begun <- name
		select {
		case <-s.free:
		case <-ctx.Done():
		case <-s.over:
		}
		return toolText("met " + name), nil
	})
	addTool(server, "die", `{}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.CloseClientConnections()
		return toolText("nobody hears this"), nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { handler.ServeHTTP(w, s.note(q)) }))
	t.Cleanup(func() {
		close(s.over)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// note keeps what is asked for.
func (s *toolServer) note(q *http.Request) *http.Request {
	body, _ := io.ReadAll(q.Body) // what cannot be read the server finds missing
	q.Body = io.NopCloser(bytes.NewReader(body))
	message := gjson.ParseBytes(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers = append(s.headers, q.Header.Clone())
	if method := message.Get("method").Str; method != "" {
		s.methods = append(s.methods, strings.TrimSuffix(method+" "+message.Get("params.name").Str, " "))
	}
	return q
}

// count is how often a method has been called.
func (s *toolServer) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.methods {
		if m == method {
			n++
		}
	}
	return n
}

// sawHeader checks that all requests had a header; without it value is "".
func (s *toolServer) sawHeader(t *testing.T, name, value string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.headers) == 0 {
		t.Error("the MCP server was not asked for anything")
	}
	for _, h := range s.headers {
		if h.Get(name) != value {
			t.Errorf("the MCP server gets %s: %q, want %q", name, h.Get(name), value)
		}
	}
}

// forget forgets what was asked for.
func (s *toolServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers, s.methods = nil, nil
}

// serve configures the server under the label docs.
func (s *toolServer) serve(c *filter.Config) {
	c.Tools.Servers = append(c.Tools.Servers, filter.ToolServer{Label: "docs", URL: s.URL})
}

const toolSchema = `{"type":"object","properties":{"q":{"type":"string"},"text":{"type":"string"}}}`

func addTool(s *mcp.Server, name, annotations string, handler mcp.ToolHandler) {
	var hints mcp.ToolAnnotations
	if err := json.Unmarshal([]byte(annotations), &hints); err != nil {
		panic(err)
	}
	s.AddTool(&mcp.Tool{Name: name, Description: fmt.Sprintf("Does %s.", name), Annotations: &hints, InputSchema: json.RawMessage(toolSchema)}, handler)
}

func toolText(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
