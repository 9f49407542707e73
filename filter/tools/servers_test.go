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

// The test binary is the stdio server of the tests, too.
const modeVariable = "TOOLS_TEST_MODE"

func TestMain(m *testing.M) {
	switch os.Getenv(modeVariable) {
	case "server":
		fmt.Fprintln(os.Stderr, "hello from the process, "+os.Getenv("TOKEN"))
		_ = newFixture().server.Run(context.Background(), &mcp.StdioTransport{})
		os.Exit(0)
	case "counted": // has a place for as long as it lives, and lives until it is told to end
		takePlace(os.Getenv("PLACES"))
		_ = newFixture().server.Run(context.Background(), &mcp.StdioTransport{})
		time.Sleep(time.Minute)
	case "broken":
		fmt.Fprintf(os.Stderr, "starting\nno such directory, %s\n\n", os.Getenv("TOKEN"))
		os.Exit(1)
	case "deaf": // never reads
		select {}
	case "stuck": // reads no more once it is initialized
		lines := bufio.NewReaderSize(os.Stdin, 16)
		_, _ = lines.ReadBytes('\n')
		fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
		select {}
	case "noise":
		fmt.Println("this is not JSON-RPC")
		select {}
	case "child": // holds a connection for as long as it lives
		conn, err := net.Dial("tcp", os.Getenv("ADDRESS"))
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
		select {}
	}
	// The fixture's own sessions outlive a test whose server ends before its
	// client.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}

// fixture is an MCP server with a few tools, and what it has seen.
type fixture struct {
	server      *mcp.Server
	initialized atomic.Int32
	calls       atomic.Int32
	started     chan struct{} // a call of wait has begun
	ended       chan error    // why its context ended
	release     chan struct{} // lets block go on
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
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // it holds the pipes, too
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

// swap is a handler that can be changed, as if its server were restarted.
type swap struct{ handler atomic.Pointer[http.Handler] }

func newSwap(h http.Handler) *swap { s := &swap{}; s.set(h); return s }

func (s *swap) set(h http.Handler) { s.handler.Store(&h) }

func (s *swap) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*s.handler.Load()).ServeHTTP(w, r) }

// serve serves h over HTTP and gives its URL.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func newClient(t testing.TB, o tools.Options) *tools.Client {
	t.Helper()
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

// do does a job that has to end soon.
func do(t testing.TB, c *tools.Client, s *tools.Server, tool, arguments string) tools.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.Do(ctx, tools.Job{Server: s, Tool: tool, Arguments: arguments})
}

// wantText fails unless a call gave a text.
func wantText(t testing.TB, r tools.Result, want string) {
	t.Helper()
	if r.Error != "" || r.Text != want {
		t.Fatalf("text %q, error %q (%v); want text %q", r.Text, r.Error, r.Cause, want)
	}
}

// takePlace locks the first file of a folder that nobody holds, 0, 1 and so on. The
// kernel gives it free when the process ends, before anybody can learn of that.
func takePlace(folder string) {
	for n := 0; ; n++ {
		f, err := os.Create(filepath.Join(folder, strconv.Itoa(n)))
		if err != nil {
			os.Exit(1)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			places = append(places, f)
			return
		}
		f.Close()
	}
}

// places are kept open.
var places []*os.File

// waitFor waits until something is so.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain: %s", what)
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
