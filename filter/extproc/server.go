package extproc

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"slices"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/background"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/models"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Options are what a [Server] is made of. All fields except Client and Budgets are set.
type Options struct {
	Config    *config.Config
	Endpoints []api.Endpoint // the first that matches a request handles it

	// Models, and what they are called with.
	Models   *models.Directory
	Dialects map[string]engine.Dialect // by engine name
	Turns    *turn.Env
	Client   run.Dialer // nil: Envoy sends the client's own request on to the engine
	Env      *run.Env
	Budgets  *budget.Set // nil: there are no token quotas

	// What is stored.
	Background *background.Maker
	// Stored reports whether a response of a tenant, and a conversation, are
	// stored here, each if it is not "".
	Stored func(ctx context.Context, tenant, response, conversation string) (bool, error)
	// Recording is what records have of the configuration.
	Recording func(r *record.Record)

	NewID func(prefix string) string
	// OwnEnvoy says that Envoy's configuration was made from Config: there are no upstreams
	// except those that it names.
	OwnEnvoy bool
}

// Server is the ext_proc service. It is safe for concurrent use.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	o         Options
	telemetry *telemetry.Telemetry
	own       []string // request headers that are read here and go no further

	memory  memoryBudget
	drain   *drain
	others  *otherModels
	unpaced *unpaced
}

// New makes the service.
func New(o Options) *Server {
	s := &Server{
		memory: memoryBudget{held: newHoldings()}, drain: newDrain(), others: &otherModels{}, unpaced: &unpaced{},
	}
	return s.With(o)
}

// With returns a server of another configuration. The bytes that the requests of
// both hold count together, draining one of the two drains both, and what is warned of once
// is not warned of again. Exchanges that s has begun go on as they are. With s nil it is New.
func (s *Server) With(o Options) *Server {
	if s == nil {
		return New(o)
	}

	next := &Server{
		o:         o,
		telemetry: o.Env.Telemetry,
		own:       header.Own(),
		memory:    newMemoryBudget(&o.Config.Limits, o.Env.Now, s.memory.held),
		drain:     s.drain,
		others:    s.others,
		unpaced:   s.unpaced,
	}

	// What Envoy chooses replicas by, and who is recorded, clients do not decide.
	routing := &o.Config.Routing
	routed := []string{routing.PrefixHeader, routing.SessionHeader, routing.SelectionHeader}
	for _, name := range append(routed, o.Env.Telemetry.Recorder.Header()) {
		if name != "" && !slices.Contains(next.own, name) {
			next.own = append(next.own, name)
		}
	}
	return next
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
	s.telemetry.Log.WithField("request_id", requestID).Errorf("panic: %v\n%s", p, debug.Stack())
}
