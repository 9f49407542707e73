package extproc

import (
	"context"
	"net"

	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/h2"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// Envoy takes every byte of a local reply at once, and keeps what the client does not
// read. It does not report to the filter how much that is. But it does hold back an
// upstream: while the buffer of the client's connection is above its high watermark,
// it does not read the upstream's reply.
//
// So where Envoy has a route for it ([header.Replies]), a streamed reply is not a local
// one. Envoy sends the client's request on to the filter, and the reply is the answer to
// that: a [Reply]. Its bytes do not pass through ext_proc, which also costs less for a
// token. A client that does not read leaves the window of HTTP/2 closed. Then events of
// the model call wait, and the connection to the engine fills up. A stored stream is
// not read on. At the end of the reply, a trailer lets Envoy ask for the last metadata.

// Reply is the answer to a client's request that Envoy sends on to the filter. It may be
// written before the request comes. *[h2.Reply] is one.
type Reply interface {
	Key() string // in [header.Reply] of the request
	Begin(fields []h2.Field)
	Write(p []byte) // does not keep p
	End(trailer h2.Field)
	Behind() bool // the client has not read enough for more to be sent
	Close()       // breaks off a reply that has no end
}

// routes reports whether Envoy has the route for replies. ctx is that of its stream.
func (s *Server) routes(ctx context.Context) bool {
	return s.o.Replies != nil && len(grpcmetadata.ValueFromIncomingContext(ctx, header.Replies)) > 0
}

// beginReply sends the client's request on to the filter's own server, where the reply
// is the answer.
func (x *exchange) beginReply() {
	x.reply = x.s.o.Replies(func() {
		x.s.o.Env.Workers.Go(func() { x.send(incoming{caughtUp: true}) })
	})
	head := sentOn([]engine.Header{{Name: header.Engine, Value: header.ReplyRoute}, {Name: header.Reply, Value: x.reply.Key()}, {Name: header.ReplyAddress, Value: servedAt(x.ctx)}}, removedForReply)
	if x.request.onDemand && x.request.bodyless {
		head.ModeOverride = demandedMode(false) // for the trailers
	}
	x.metadata.begin(head)
	x.to.add(head)
	switch {
	case x.request.bodyless:
	case x.request.trailers:
		x.to.add(requestTrailersReply())
	default:
		x.to.requestBody(nil, true)
	}
}

// servedAt is the address at which Envoy has reached this process; "" for a Unix socket,
// of which Envoy's configuration has the path.
func servedAt(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.LocalAddr.(*net.TCPAddr); ok {
			return a.String()
		}
	}
	return ""
}

// fieldsOf are headers as package h2 has them.
func fieldsOf(headers []engine.Header) []h2.Field {
	fields := make([]h2.Field, len(headers))
	for i, h := range headers {
		fields[i] = h2.Field(h)
	}
	return fields
}

// behind reports whether the client has not read enough for more of a reply to be sent.
func behind(r Reply) bool { return r != nil && r.Behind() }

// keepPace lets what makes the reply wait while the client is behind.
func (x *exchange) keepPace() {
	wait := behind(x.reply)
	x.runner.Hold(wait)
	if x.stored != nil && !wait {
		x.stored.goOn()
	}
}
