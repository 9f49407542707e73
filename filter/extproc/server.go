package extproc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"slices"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/background"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
	"github.com/envoy-harmony/envoy-harmony/filter/models"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Options are what a [Server] is made of. All fields but Client and Budgets are set.
type Options struct {
	Config     *config.Config
	Dialects   map[string]engine.Dialect // by engine name
	Endpoints  []api.Endpoint            // the first that matches a request handles it
	Turns      *turn.Env
	Models     *models.Directory
	Client     *loopback.Client // nil: Envoy sends the client's own request on to the engine
	Background *background.Maker
	Budgets    *budget.Set // nil: there are no token budgets
	// Stored reports whether a response of a tenant, and a conversation, are
	// stored here, each if it is not "".
	Stored func(ctx context.Context, tenant, response, conversation string) (bool, error)
	// OwnEnvoy says that Envoy's configuration was made from Config: there are no upstreams
	// but those that it names.
	OwnEnvoy bool
	Env      *run.Env
	NewID    func(prefix string) string
	// Recording is what records have of the configuration.
	Recording func(r *record.Record)
}

// Server is the ext_proc service. It is safe for concurrent use.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	o      Options
	own    []string // request headers that are read here and go no further
	budget byteBudget

	drain *drain
}

// New makes the service.
func New(o Options) *Server {
	s := &Server{budget: byteBudget{held: newHoldings()}, drain: newDrain()}
	return s.With(o)
}

// With returns a server of another configuration. The bytes that the requests of
// both hold count together, and draining one of the two drains both. Exchanges that
// s has begun go on as they are. With s nil it is New.
func (s *Server) With(o Options) *Server {
	if s == nil {
		return New(o)
	}
	s = &Server{o: o, own: header.Own(), budget: newBudget(&o.Config.Limits, o.Env.Now, s.budget.held), drain: s.drain}
	for _, name := range []string{o.Config.Routing.PrefixHeader, o.Config.Routing.SessionHeader, o.Config.Routing.SelectionHeader, o.Env.Telemetry.Recorder.Header()} {
		if name != "" && !slices.Contains(s.own, name) {
			s.own = append(s.own, name)
		}
	}
	return s
}

// Process runs one exchange. It implements Envoy's ExternalProcessor service.
//
// Messages are taken one at a time and their replies are sent before the next is
// taken, so that a slow reader holds back the sender and nothing is queued. An
// error resets the client's stream; Envoy would continue without the filter after a
// clean end, so none is returned before Envoy ends the stream.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) (err error) {
	stackToServe(false)
	x := newExchange(stream.Context(), s, s.o.Env.Now())
	defer s.o.Env.Telemetry.Metrics.StreamBegins()()
	defer s.drain.add(x)()
	ok := x.runner.Protect(&x.request.id, func() { err = s.serve(stream, x) })
	if !ok {
		x.abandon()
	}
	if !x.runner.Protect(&x.request.id, func() { x.close(s.o.Env.Now()) }) {
		ok = false
		x.abandon() // what has failed in it is not used again
		x.runner.Protect(&x.request.id, func() { x.close(s.o.Env.Now()) })
	}
	if !ok {
		err = status.Error(codes.Internal, "envoy-harmony: internal error")
	}
	return err
}

// serve feeds an exchange until Envoy ends the stream.
func (s *Server) serve(stream extprocv3.ExternalProcessor_ProcessServer, x *exchange) error {
	go receive(stream, x)
	err := run.Serve(stream.Context(), x.runner, x.in, connected{x, stream})
	switch {
	case errors.Is(err, errStreamEnded):
		return x.ended
	case errors.Is(err, errGaveWay):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, errRequestHeaders), errors.Is(err, errResponseHeaders):
		s.o.Env.Telemetry.Log.WithError(err).Error("The ext_proc filter is not configured for envoy-harmony")
		x.runner.Record.Failed(apierror.New(http.StatusInternalServerError, "ext_proc_mode", "", "%s", err))
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, errRequestHeadersAgain), errors.Is(err, errRequestHeadersLate), errors.Is(err, errResponseHeadersAgain):
		s.o.Env.Telemetry.Log.WithError(err).Error("The ext_proc messages are in an order that Envoy does not send")
		x.runner.Record.Failed(apierror.New(http.StatusInternalServerError, "ext_proc_order", "", "%s", err))
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// connected is an exchange with its stream.
type connected struct {
	*exchange
	stream extprocv3.ExternalProcessor_ProcessServer
}

// Flush implements [run.Owner].
func (c connected) Flush() error {
	for _, m := range c.to.out {
		if err := c.stream.Send(m); err != nil {
			return endOf(err)
		}
	}
	return nil
}

// receive reads the stream until it ends.
func receive(stream extprocv3.ExternalProcessor_ProcessServer, x *exchange) {
	stackToServe(false)
	for {
		m, err := stream.Recv()
		if !x.send(incoming{message: m, err: err}) || err != nil {
			return
		}
	}
}

// endOf is the handler's result for the error with which the stream ended. Envoy
// ends streams by canceling them as often as by closing them.
func endOf(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// kindOf names a message for the metrics.
func kindOf(m *extprocv3.ProcessingRequest) telemetry.MessageKind {
	switch m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return telemetry.MessageRequestHeaders
	case *extprocv3.ProcessingRequest_RequestBody:
		return telemetry.MessageRequestBody
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return telemetry.MessageResponseHeaders
	case *extprocv3.ProcessingRequest_ResponseBody:
		return telemetry.MessageResponseBody
	}
	return telemetry.MessageTrailers
}

func (s *Server) logPanic(requestID string, p any) {
	s.o.Env.Telemetry.Log.WithField("request_id", requestID).Errorf("panic: %v\n%s", p, debug.Stack())
}
