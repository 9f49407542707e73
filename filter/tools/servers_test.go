package tools_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// The test binary is also the stdio server of the tests. This variable selects its
// mode.
const modeVariable = "TOOLS_TEST_MODE"

func TestMain(m *testing.M) {
	switch os.Getenv(modeVariable) {
	case "server":
		fmt.Fprintln(os.Stderr, "hello from the process, "+os.Getenv("TOKEN"))
		_ = newFixture().server.Run(context.Background(), &mcp.StdioTransport{})
		os.Exit(0)

	case "locksFile": // holds a lock while it runs, and runs until it is signaled
		lockFile(os.Getenv("LOCKS"))
		_ = newFixture().server.Run(context.Background(), &mcp.StdioTransport{})
		time.Sleep(time.Minute)

	case "exits":
		fmt.Fprintf(os.Stderr, "starting\nno such directory, %s\n\n", os.Getenv("TOKEN"))
		os.Exit(1)

	case "neverReads":
		select {}
	case "stopsReading": // after initialize
		lines := bufio.NewReaderSize(os.Stdin, 16)
		_, _ = lines.ReadBytes('\n')
		fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
		select {}

	case "noJSONRPC":
		fmt.Println("this is not JSON-RPC")
		select {}

	case "child": // holds a connection while it runs
		conn, err := net.Dial("tcp", os.Getenv("ADDRESS"))
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
		select {}
	}

	// Sessions of the fixture may outlive a test whose server is closed before its
	// client.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}

// fixture is an MCP server with a few tools that counts sessions and calls.
type fixture struct {
	server      *mcp.Server
	initialized atomic.Int32
	calls       atomic.Int32
	// Receives when a call of wait or block begins.
	started chan struct{}
	// Receives the error of the context of wait.
	ended chan error
	// Ends calls of block.
	release chan struct{}
}

func newFixture() *fixture {
	f := &fixture{started: make(chan struct{}, 100), ended: make(chan error, 100), release: make(chan struct{})}
	f.server = mcp.NewServer(&mcp.Implementation{Name: "fixture", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	f.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch method {
			case "initialize":
				f.initialized.Add(1)
			case "tools/call":
				f.calls.Add(1)
			}
			return next(ctx, method, req)
		}
	})

	f.add("echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(req.Params.Arguments)), nil
	})

	f.add("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := text("no such page")
		r.IsError = true
		return r, nil
	})

	f.add("wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.started <- struct{}{}
		<-ctx.Done()
		f.ended <- ctx.Err()
		return nil, ctx.Err()
	})

	f.add("block", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.started <- struct{}{}
		select {
		case <-f.release:
		case <-ctx.Done():
		}
		return text("done"), nil
	})

	f.add("env", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(fmt.Sprint(os.Environ())), nil
	})

	f.add("exit", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return text("not reached"), nil
	})

	f.add("child", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{modeVariable + "=child", "ADDRESS=" + os.Getenv("ADDRESS")}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // it holds the pipes as well
		return text("started"), cmd.Start()
	})

	f.add("ask", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, sampling := req.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1}) //nolint:staticcheck // deprecated, but servers may still ask
		_, elicitation := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "your password?", RequestedSchema: map[string]any{"type": "object"}})
		roots, listing := req.Session.ListRoots(ctx, nil) //nolint:staticcheck // deprecated, but servers may still ask
		return text(fmt.Sprintf("%v | %v | %v %v", sampling != nil, elicitation != nil, listing != nil, roots)), nil
	})
	return f
}

func (f *fixture) add(name string, handler mcp.ToolHandler) {
	f.server.AddTool(&mcp.Tool{Name: name, Description: "Does " + name + ".", InputSchema: rawObject(`{"type":"object","properties":{"zulu":{"type":"string"},"alpha":{"type":"string"}}}`)}, handler)
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

type rawObject string

func (r rawObject) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func (f *fixture) streamable() http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.server }, nil)
}

func (f *fixture) sse() http.Handler {
	return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return f.server }, nil)
}

// switchHandler is a handler that can be replaced, as by a restart of its server.
type switchHandler struct{ handler atomic.Pointer[http.Handler] }

func newSwitchHandler(h http.Handler) *switchHandler { s := &switchHandler{}; s.set(h); return s }

func (s *switchHandler) set(h http.Handler) { s.handler.Store(&h) }

func (s *switchHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.handler.Load()).ServeHTTP(w, r)
}

// serve serves h over HTTP and returns the URL.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// patience bounds waiting for events that must happen. It is long enough for a
// loaded machine and ends before the time limit of go test.
const patience = 5 * time.Minute

// newClient makes a client that is closed with the test. Timeouts that a test does
// not set do not end its jobs.
func newClient(t testing.TB, o tools.Options) *tools.Client {
	t.Helper()
	if o.ListTimeout == 0 {
		o.ListTimeout = patience
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = patience
	}
	if o.Log == nil {
		o.Log = logrus.New()
		o.Log.Out = io.Discard
	}
	c := tools.New(o)
	t.Cleanup(c.Close)
	return c
}

func trusted(url string) *tools.Server {
	return &tools.Server{Label: "fixture", URL: url, Trusted: true}
}

func process(mode string, env map[string]string) *tools.Server {
	s := &tools.Server{Label: "process", Command: []string{os.Args[0]}, Env: map[string]string{modeVariable: mode}, Trusted: true}
	for name, value := range env {
		s.Env[name] = value
	}
	return s
}

// do runs a job.
func do(t testing.TB, c *tools.Client, s *tools.Server, tool, arguments string) tools.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Do(ctx, tools.Job{Server: s, Tool: tool, Arguments: arguments})
}

// wantText fails the test unless the result has this text and no error.
func wantText(t testing.TB, r tools.Result, want string) {
	t.Helper()
	if r.Error != "" || r.Text != want {
		t.Fatalf("text %q, error %q (%v); want text %q", r.Text, r.Error, r.Cause, want)
	}
}

// lockFile creates and locks the first unlocked file 0, 1, ... of a folder. The
// kernel releases the lock when the process ends, before others can notice the end.
func lockFile(folder string) {
	for n := 0; ; n++ {
		f, err := os.Create(filepath.Join(folder, strconv.Itoa(n)))
		if err != nil {
			os.Exit(1)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			lockedFiles = append(lockedFiles, f)
			return
		}
		f.Close()
	}
}

// lockedFiles are never closed, so that the locks are held.
var lockedFiles []*os.File

// waitFor polls until a condition holds.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout while waiting for: %s", what)
		}
	}
}

// receive returns the next value of a channel, or the zero value once it is closed.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("timeout while waiting for: %s", what)
		panic("unreachable")
	}
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func debugLog() (*logrus.Logger, *buffer) {
	log, out := logrus.New(), &buffer{}
	log.Out, log.Level = out, logrus.DebugLevel
	return log, out
}
