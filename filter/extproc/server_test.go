package extproc

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests of this file speak gRPC, with a clock that nobody moves.

// connection is a gRPC server in memory, with the stream of an exchange.
type connection struct {
	extprocv3.ExternalProcessor_ProcessClient
	t     *testing.T
	leave context.CancelFunc
	stop  func() // waits for the handlers
}

// connect serves s over gRPC and opens one stream, as Envoy does.
func connect(t *testing.T, s *testServer) *connection {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(Codec()))
	extprocv3.RegisterExternalProcessorServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:filter", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	stopped := false
	c := &connection{t: t, leave: cancel}
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(c.stop)
	if c.ExternalProcessor_ProcessClient, err = extprocv3.NewExternalProcessorClient(conn).Process(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// post sends a chat request.
func (c *connection) post(body string, end bool) {
	c.t.Helper()
	c.send(requestHeaders(duplex, duplex, false, ":method=POST", ":path=/v1/chat/completions"), requestBody(body, end))
}

func (c *connection) send(messages ...*extprocv3.ProcessingRequest) {
	c.t.Helper()
	for _, m := range messages {
		if err := c.Send(m); err != nil {
			c.t.Fatal(err)
		}
	}
}

// ended waits for the stream's end, and returns its status.
func (c *connection) ended() codes.Code {
	for {
		if _, err := c.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

func TestStreamOverGRPC(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	c := connect(t, s)
	c.post(ask(""), true)
	if call := s.loopback.await(); call.body.Get("prompt.#").Int() == 0 {
		t.Fatalf("the engine gets %s", call.body.Raw)
	}
	c.leave()
	if code := c.ended(); code != codes.Canceled {
		t.Errorf("the stream ends with %s", code)
	}
	c.stop()
	if n := s.counted(t, "harmony_requests_total", "api=chat model=other outcome=canceled"); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

func TestTimerOverGRPC(t *testing.T) {
	t.Parallel()
	c := connect(t, newServer(t, func(w *wiring) { w.cfg.Limits.BodyTimeout.Duration = 10 * time.Millisecond }))
	c.post("{", false)
	m, err := c.Recv()
	if err != nil || m.GetImmediateResponse().GetStatus().GetCode() != 408 {
		t.Fatalf("%v, %v in place of a 408", m, err)
	}
}

func TestAnotherFirstMessage(t *testing.T) {
	t.Parallel()
	c := connect(t, newServer(t, nil))
	c.send(requestBody("x", true))
	if code := c.ended(); code != codes.FailedPrecondition {
		t.Errorf("the stream ends with %s", code)
	}
}

// panickingDialect is the dialect of an engine, with a bug.
type panickingDialect struct{ engine.Dialect }

func (panickingDialect) Encode(*engine.Request) (*engine.HTTPRequest, *apierror.Error) { panic("bug") }

func TestPanicEndsOneStreamOnly(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	good := s.o.Dialects["main"]
	s.o.Dialects["main"] = panickingDialect{good}
	c := connect(t, s)
	c.post(ask(""), true)
	if code := c.ended(); code != codes.Internal {
		t.Errorf("the stream ends with %s", code)
	}
	c.stop()
	s.o.Dialects["main"] = good
	again := connect(t, s)
	again.post(ask(""), true)
	s.loopback.await()
}

// fragileRequest is a request whose reply has a bug that shows when its client
// leaves.
type fragileRequest struct{ api.Request }

func (r fragileRequest) NewReply(m api.Mode) api.Reply { return fragileReply{r.Request.NewReply(m)} }

type fragileReply struct{ api.Reply }

func (fragileReply) Cancel() []api.Job { panic("bug") }

// A panic at the end of an exchange is counted, and ends that one only.
func TestPanicAtTheEnd(t *testing.T) {
	t.Parallel()
	good := chat.Endpoints()[0]
	s := newServer(t, func(w *wiring) {
		w.endpoints = []api.Endpoint{{API: "chat", Method: http.MethodPost, Pattern: chat.Path, Handle: func(ctx context.Context, r *api.HTTPRequest) api.Outcome {
			o := good.Handle(ctx, r)
			o.Request = fragileRequest{o.Request}
			return o
		}}}
	})
	c := connect(t, s)
	c.post(ask(""), true)
	s.loopback.await()
	c.stop()
	n := s.counted(t, "harmony_requests_total", "api=chat model=other outcome=failed")
	if n != 1 || s.inUse() != 0 {
		t.Errorf("counted %v times; %d bytes are still taken", n, s.inUse())
	}
	again := connect(t, s)
	again.post(ask(""), true)
	s.loopback.await()
}
