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

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// stdioServer is the environment variable that makes the test binary an MCP server
// on standard input and output.
const stdioServer = "E2E_MCP_STDIO"

// serveStdio runs that server if the variable is set.
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
		return toolText("not received"), nil
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
	os.Exit(0)
}

// process returns the configuration of that server.
func process(t *testing.T, label string) config.ToolServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return config.ToolServer{Label: label, Command: []string{self}, Env: map[string]string{stdioServer: "1"}}
}

// toolServer is an MCP server over streamable HTTP with a few tools. It records
// requests.
type toolServer struct {
	*httptest.Server
	mu       sync.Mutex
	methods  []string // methods of requests, with the name of the called tool
	headers  []http.Header
	started  chan string   // the argument q of a call of hang or meet that has started
	ended    chan error    // the context's error of a call of hang that has ended
	release  chan struct{} // ends calls of meet
	testDone chan struct{} // closed at the end of the test
}

func newToolServer(t testing.TB) *toolServer {
	s := &toolServer{started: make(chan string, 100), ended: make(chan error, 100), release: make(chan struct{}), testDone: make(chan struct{})}
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
		s.started <- gjson.GetBytes(q.Params.Arguments, "q").Str
		select {
		case <-ctx.Done():
		case <-s.testDone:
		}
		s.ended <- ctx.Err()
		return nil, ctx.Err()
	})
	addTool(server, "meet", `{}`, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name := gjson.GetBytes(q.Params.Arguments, "q").Str
		s.started <- name
		select {
		case <-s.release:
		case <-ctx.Done():
		case <-s.testDone:
		}
		return toolText("met " + name), nil
	})
	addTool(server, "die", `{}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.CloseClientConnections()
		return toolText("not received"), nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { handler.ServeHTTP(w, s.record(q)) }))
	t.Cleanup(func() {
		close(s.testDone)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// record stores the method and the headers of a request.
func (s *toolServer) record(q *http.Request) *http.Request {
	body, _ := io.ReadAll(q.Body) // an unreadable body has no method
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

// count returns the number of requests of a method.
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

// checkHeader checks that all requests have a header with a value; "" means that
// they do not have it.
func (s *toolServer) checkHeader(t *testing.T, name, value string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.headers) == 0 {
		t.Error("the MCP server got no requests")
	}
	for _, h := range s.headers {
		if h.Get(name) != value {
			t.Errorf("the MCP server gets %s: %q, want %q", name, h.Get(name), value)
		}
	}
}

// reset deletes the records.
func (s *toolServer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers, s.methods = nil, nil
}

// serve configures the server with the label docs.
func (s *toolServer) serve(c *config.Config) {
	c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: "docs", URL: s.URL})
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
