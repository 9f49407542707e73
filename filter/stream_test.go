package filter

import (
	"context"
	"net"
	"testing"
	"time"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect serves s over gRPC in memory and opens one stream, as Envoy does.
func connect(t *testing.T, s *Server) (extprocv3.ExternalProcessor_ProcessClient, context.CancelFunc) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	s.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:filter", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream, cancel
}

func send(t *testing.T, stream extprocv3.ExternalProcessor_ProcessClient, messages ...*extprocv3.ProcessingRequest) {
	t.Helper()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

func chatHeaders() *extprocv3.ProcessingRequest {
	const duplex = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	return &extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: duplex, ResponseBodyMode: duplex},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: headerMap([]string{":method=POST", ":path=/v1/chat/completions"}),
		}},
	}
}

func chatBody(p string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(p), EndOfStream: end}}}
}

// ended waits for the stream's end and gives its status.
func ended(stream extprocv3.ExternalProcessor_ProcessClient) codes.Code {
	for {
		if _, err := stream.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

func TestStreamOverGRPC(t *testing.T) {
	s := newScript(t, nil).x.s
	stream, cancel := connect(t, s)
	send(t, stream, chatHeaders(), chatBody(ask(""), true))
	headers, err := stream.Recv()
	if err != nil || headers.GetRequestHeaders() == nil {
		t.Fatalf("%v, %v in place of a headers reply", headers, err)
	}
	body, err := stream.Recv()
	if err != nil || len(body.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody()) == 0 {
		t.Fatalf("%v, %v in place of a body", body, err)
	}
	cancel() // the client goes away
	if code := ended(stream); code != codes.Canceled {
		t.Errorf("the stream ends with %s", code)
	}
	awaitCounted(t, s.metrics.requests.WithLabelValues("chat", "other", outcomeCut))
}

// awaitCounted waits until something has been counted: a handler ends a moment
// after its stream.
func awaitCounted(t *testing.T, c prometheus.Metric) float64 {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if n := counted(t, c); n > 0 {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is counted")
		}
	}
}

func counted(t *testing.T, c prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestStreamTicks(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Limits.BodyTimeout.Duration = 10 * time.Millisecond }).x.s
	s.now = time.Now
	stream, _ := connect(t, s)
	send(t, stream, chatHeaders(), chatBody("{", false))
	m, err := stream.Recv()
	if err != nil || m.GetImmediateResponse().GetStatus().GetCode() != 408 {
		t.Fatalf("%v, %v in place of a 408", m, err)
	}
}

func TestStreamRefusesAnotherFirstMessage(t *testing.T) {
	stream, _ := connect(t, newScript(t, nil).x.s)
	send(t, stream, chatBody("x", true))
	if code := ended(stream); code != codes.FailedPrecondition {
		t.Errorf("the stream ends with %s", code)
	}
}

// panicking is an engine whose dialect has a bug.
type panicking struct{ engine.Dialect }

func (panicking) Encode(*engine.Request) (*engine.HTTPRequest, *apierror.Error) { panic("bug") }

func TestPanicEndsOneStreamOnly(t *testing.T) {
	s := newScript(t, nil).x.s
	good := s.dialects["main"]
	s.dialects["main"] = panicking{good}
	stream, _ := connect(t, s)
	send(t, stream, chatHeaders(), chatBody(ask(""), true))
	if code := ended(stream); code != codes.Internal {
		t.Errorf("the stream ends with %s", code)
	}
	s.dialects["main"] = good
	again, _ := connect(t, s)
	send(t, again, chatHeaders(), chatBody(ask(""), true))
	if m, err := again.Recv(); err != nil || m.GetRequestHeaders() == nil {
		t.Errorf("%v, %v after a panic in another stream", m, err)
	}
}

// fragile is a call whose reply has a bug that shows when its client leaves.
type fragile struct{ call }

func (c fragile) NewReply() reply { return fragileReply{c.call.NewReply()} }

type fragileReply struct{ reply }

func (fragileReply) Cancel() { panic("bug") }

// A panic at the end of an exchange is counted and ends that one only, too.
func TestPanicAtTheEnd(t *testing.T) {
	s := newScript(t, nil).x.s
	decode := s.apis.chat.decode
	s.apis.chat.decode = func(ctx context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error) {
		c, err := decode(ctx, body, scope)
		return fragile{c}, err
	}
	stream, cancel := connect(t, s)
	send(t, stream, chatHeaders(), chatBody(ask(""), true))
	if m, err := stream.Recv(); err != nil || m.GetRequestHeaders() == nil {
		t.Fatalf("%v, %v in place of a headers reply", m, err)
	}
	cancel()
	n := awaitCounted(t, s.metrics.requests.WithLabelValues("chat", "other", outcomeFailed))
	if n != 1 || s.budget.used.Load() != 0 {
		t.Errorf("counted %v times; %d bytes are still held", n, s.budget.used.Load())
	}
	again, _ := connect(t, s)
	send(t, again, chatHeaders(), chatBody(ask(""), true))
	if m, err := again.Recv(); err != nil || m.GetRequestHeaders() == nil {
		t.Errorf("%v, %v after a panic in another stream", m, err)
	}
}
