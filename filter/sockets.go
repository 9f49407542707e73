package filter

import (
	"context"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
	"github.com/envoy-harmony/envoy-harmony/filter/websocket"
)

// slowReader is how long an event waits for a client to read those before: as long as nothing else
// of a connection may hang, and short enough that what its response holds is free again soon.
const slowReader = 30 * time.Second

// Sockets is the handler of WebSocket connections. Envoy sends upgrades to it, and nobody else
// may reach it: tenants and credentials are what its headers say.
func (s *Server) Sockets() http.Handler { return s.sockets }

// CloseSockets ends the WebSocket connections: at once when ctx has ended, else when the
// responses that they make are done.
func (s *Server) CloseSockets(ctx context.Context) { s.sockets.Close(ctx) }

// newSockets makes the server of WebSocket connections. It lives as long as the process: a
// connection outlives configurations, and each of its responses has the one that is current at
// its beginning.
func (s *Server) newSockets() *websocket.Server {
	return websocket.New(websocket.Options{
		Drive: func(d extproc.Driver) error { return s.current.Load().extproc.Drive(d) },
		Hold: func(headers *extprocv3.ProcessingRequest) websocket.Memory {
			return held{s.current.Load().extproc.Hold(headers)}
		},
		Limits: func() websocket.Limits {
			cfg := s.Config()
			return websocket.Limits{
				Connections:  cfg.WebSocket.MaxConnections,
				Responses:    cfg.WebSocket.MaxResponses,
				MessageBytes: cfg.Limits.MaxBodyBytes,
				MessageTime:  cfg.Limits.BodyTimeout.Duration,
				WriteTime:    slowReader,
				LocalBytes:   cfg.Limits.MaxConversationBytes,
				IdleTimeout:  cfg.WebSocket.IdleTimeout.Duration,
				MaxAge:       cfg.WebSocket.MaxAge.Duration,
				KeepAlive:    cfg.Limits.KeepAlive.Duration,
			}
		},
		Tenant: func(headers http.Header) (name string, known bool) {
			header := s.Config().TenantHeader
			if header == "" {
				return "", false
			}
			// Of two values one may be the client's own: their requests have no tenant either.
			if values := headers.Values(header); len(values) == 1 {
				name = values[0]
			}
			return name, true
		},
		Now:    s.o.Now,
		Go:     s.workers.Go,
		NewID:  s.o.NewID,
		Opened: s.telemetry.Metrics.ConnectionOpens,
	})
}

// held is the memory of a connection, as package websocket has it.
type held struct{ extproc.Holding }

// Receive implements [websocket.Memory].
func (h held) Receive(drop func(err *apierror.Error)) websocket.Arriving {
	return h.Holding.Receive(drop)
}

// Keep implements [websocket.Memory].
func (h held) Keep(forget func(bytes int)) websocket.Kept { return h.Holding.Keep(forget) }
