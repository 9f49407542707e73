package stack

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

// serveTools serves tools over streamable HTTP. newServer makes the server of each
// session.
func serveTools(t testing.TB, newServer func() *mcp.Server) string {
	t.Helper()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, nil)
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		// Close waits for open requests, and a client of MCP may keep one open for the server's messages.
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// newBrowser returns an MCP server that simulates a browser with the pages of a
// shop. Each page that it shows has a cursor, which is counted per session.
func newBrowser() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "browser", Version: "1"}, nil)
	var mu sync.Mutex
	// The model cites pages by their cursors, which begin with 0.
	cursor := -1

	show := func(title, url, text string) (*mcp.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		cursor++
		return toolText(fmt.Sprintf(
			"[%d] %s (%s)\n**viewing lines [0 - 1] of 1**\n\nL0: %s", cursor, title, url, text)), nil
	}

	addTool(s, "search", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		query := gjson.GetBytes(q.Params.Arguments, "query").Str
		if query == "" {
			r := toolText("There is no query.")
			r.IsError = true
			return r, nil
		}
		return show(query, "https://shop.example/find?"+query, "【0†The shop】")
	})

	addTool(s, "open", `{}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return show("The shop", "https://shop.example/", "Cats are 3 €.")
	})
	addTool(s, "find", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return show("The shop", "https://shop.example/", "match "+gjson.GetBytes(q.Params.Arguments, "pattern").Str)
	})

	return s
}

// newPython returns an MCP server that simulates an interpreter: "NAME = TEXT" sets
// a variable of the session, "NAME" returns it.
func newPython() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "python", Version: "1"}, nil)
	var mu sync.Mutex
	variables := map[string]string{}
	addTool(s, "python", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		name, value, sets := strings.Cut(gjson.GetBytes(q.Params.Arguments, "code").Str, " = ")
		if sets {
			variables[name] = value
			return toolText(""), nil
		}
		if value, ok := variables[name]; ok {
			return toolText(value), nil
		}
		r := toolText("NameError: name '" + name + "' is not defined")
		r.IsError = true
		return r, nil
	})
	return s
}

// ServeBuiltins configures the servers of the browser and the interpreter.
func ServeBuiltins(t testing.TB) func(*config.Config) {
	browser, python := serveTools(t, newBrowser), serveTools(t, newPython)
	return func(c *config.Config) {
		c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: "web", URL: browser},
			config.ToolServer{Label: "interpreter", URL: python})
		c.Tools.WebSearch, c.Tools.CodeInterpreter = "web", "interpreter"
	}
}

// Set returns a flag that configures the server for [DocsTool].
func (s *ToolServer) Set(t *testing.T) string {
	t.Helper()
	servers, err := json.Marshal([]map[string]string{{"label": "docs", "url": s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	return "tools.servers=" + string(servers)
}

// FixedServer is an MCP server with fixed answers, which can deviate from the
// protocol.
type FixedServer struct {
	*httptest.Server
	// tools is the result of tools/list, call returns that of a call.
	tools string
	call  func(name string, r *http.Request) string
	// Status is the HTTP status of the answer to a call; from 400 on call returns an error.
	Status int

	mu sync.Mutex
	// methods has the number of requests by method.
	methods map[string]int
}

// NewFixedServer serves a JSON list of tools.
func NewFixedServer(t *testing.T, tools string, call func(name string, r *http.Request) string) *FixedServer {
	s := &FixedServer{tools: tools, call: call, Status: http.StatusOK, methods: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// ServeHTTP implements [http.Handler].
func (s *FixedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // an unreadable body has no method
	m := gjson.ParseBytes(body)
	// The results are written by hand: the server of the SDK could not break the protocol.
	method, member, value, status := m.Get("method").Str, "result", "{}", http.StatusOK

	s.mu.Lock()
	s.methods[method]++
	s.mu.Unlock()

	switch method {
	case "initialize":
		value = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"plain","version":"1"}}`
	case "tools/list":
		// A test can see in the list of tools which headers have reached the server.
		value = strings.ReplaceAll(`{"tools":`+s.tools+`}`, "HEADER", r.Header.Get("X-Operator")+r.Header.Get("X-Own"))
	case "tools/call":
		value, status = s.call(m.Get("params.name").Str, r), s.Status
		if status >= http.StatusBadRequest {
			member = "error"
		}
	// Notifications, such as notifications/initialized, are accepted without an answer.
	default:
		status = http.StatusAccepted
	}

	w.Header().Set("Mcp-Session-Id", "one")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)

	// A notification has no id and gets no answer.
	if m.Get("id").Exists() {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.Get("id").Raw, member, value)
	}
}

// Count returns the number of requests with a method.
func (s *FixedServer) Count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.methods[method]
}

// ToolResult returns the result of a call as JSON.
func ToolResult(text string, isError bool) string {
	// always marshals
	b, _ := json.Marshal(map[string]any{
		"isError": isError,
		"content": []any{map[string]any{"type": "text", "text": text}},
	})
	return string(b)
}

// AnyObject is a member of a tool: its arguments are any object.
const AnyObject = `"inputSchema":{"type":"object"}`

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
		// A crash in the middle of a call, whose result never comes.
		os.Exit(3)
		return toolText("not received"), nil
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
	os.Exit(0)
}

// Process returns the configuration of that server.
func Process(t *testing.T, label string) config.ToolServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return config.ToolServer{Label: label, Command: []string{self}, Env: map[string]string{stdioServer: "1"}}
}

// ToolServer is an MCP server over streamable HTTP with a few tools. It records
// requests.
type ToolServer struct {
	*httptest.Server

	Mu      sync.Mutex
	Headers []http.Header
	// methods are those of requests, with the name of the called tool.
	methods []string

	// Started gets the argument q of each call of hang or meet that has begun, Ended the
	// context's error of each call of hang that has ended.
	Started chan string
	Ended   chan error
	// Release ends calls of meet.
	Release chan struct{}
	// testDone is closed at the end of the test.
	testDone chan struct{}
}

// NewToolServer starts the server until the test ends.
func NewToolServer(t testing.TB) *ToolServer {
	// The channels have room, so that no call waits for a test that does not look at them.
	s := &ToolServer{
		Started: make(chan string, 100), Ended: make(chan error, 100), Release: make(chan struct{}),
		testDone: make(chan struct{}),
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
	addTool(server, "search", `{"readOnlyHint":true}`,
		func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return toolText("found " + gjson.GetBytes(q.Params.Arguments, "q").Str), nil
		})
	addTool(server, "delete-all", `{"destructiveHint":true}`,
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r := toolText("It is forbidden.")
			r.IsError = true
			return r, nil
		})

	addTool(server, "hang", `{}`, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.Started <- gjson.GetBytes(q.Params.Arguments, "q").Str
		select {
		case <-ctx.Done():
		case <-s.testDone:
		}
		s.Ended <- ctx.Err()
		return nil, ctx.Err()
	})

	addTool(server, "meet", `{}`, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name := gjson.GetBytes(q.Params.Arguments, "q").Str
		s.Started <- name
		select {
		case <-s.Release:
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
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		q *http.Request,
	) {
		handler.ServeHTTP(w, s.record(q))
	}))

	t.Cleanup(func() {
		close(s.testDone)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// record stores the method and the headers of a request.
func (s *ToolServer) record(q *http.Request) *http.Request {
	body, _ := io.ReadAll(q.Body) // an unreadable body has no method
	q.Body = io.NopCloser(bytes.NewReader(body))
	message := gjson.ParseBytes(body)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Headers = append(s.Headers, q.Header.Clone())
	if method := message.Get("method").Str; method != "" {
		s.methods = append(s.methods, strings.TrimSuffix(method+" "+message.Get("params.name").Str, " "))
	}
	return q
}

// Count returns the number of requests of a method.
func (s *ToolServer) Count(method string) (n int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, m := range s.methods {
		if m == method {
			n++
		}
	}
	return n
}

// CheckHeader checks that all requests have a header with a value; "" means that
// they do not have it.
func (s *ToolServer) CheckHeader(t *testing.T, name, value string) {
	t.Helper()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.Headers) == 0 {
		t.Error("the MCP server got no requests")
	}
	for _, h := range s.Headers {
		if h.Get(name) != value {
			t.Errorf("the MCP server gets %s: %q, want %q", name, h.Get(name), value)
		}
	}
}

// Reset deletes the records.
func (s *ToolServer) Reset() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Headers, s.methods = nil, nil
}

// Serve configures the server with the label docs.
func (s *ToolServer) Serve(c *config.Config) {
	c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: "docs", URL: s.URL})
}

const toolSchema = `{"type":"object","properties":{"q":{"type":"string"},"text":{"type":"string"}}}`

func addTool(s *mcp.Server, name, annotations string, handler mcp.ToolHandler) {
	var hints mcp.ToolAnnotations
	if err := json.Unmarshal([]byte(annotations), &hints); err != nil {
		panic(err)
	}
	s.AddTool(&mcp.Tool{Name: name, Description: fmt.Sprintf(
		"Does %s.", name), Annotations: &hints, InputSchema: json.RawMessage(toolSchema)}, handler)
}

func toolText(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// MessageTools configures the tools that the filter runs for messages: an MCP server
// docs, one that requires approval, a browser and an interpreter.
func MessageTools(t *testing.T) (server *ToolServer, configure func(*config.Config)) {
	server = NewToolServer(t)
	builtins := ServeBuiltins(t)
	return server, func(c *config.Config) {
		c.Tools.Servers = append(c.Tools.Servers,
			config.ToolServer{Label: "docs", URL: server.URL},
			config.ToolServer{Label: "guarded", URL: server.URL, RequireApproval: config.ApprovalAlways})
		builtins(c)
	}
}
