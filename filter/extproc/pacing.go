package extproc

import (
	"context"
	"errors"
	"net/http"
	"sync"

	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// Envoy takes every byte of a local reply at once, and keeps what the client does not
// read. It does not report to the filter how much that is. But it does hold back an
// upstream: while the buffer of the client's connection is above its high watermark,
// it does not read the upstream's reply.
//
// So where Envoy has a route for it ([header.Pacing]), a streamed reply is not a local
// one. Envoy sends the client's request on to a service that returns the bytes of the
// request's body, and the reply takes the place of that service's. The filter sends
// marks, of one byte, as the body of the request. A mark that comes back says that the
// client has read what was sent before it, except what Envoy's buffer may hold.
// Without it no more than paceAhead is sent: events of the model call wait, and the
// connection to the engine fills up. A stored stream is not read on.
//
// Envoy takes no body for a request that came without one, as a GET does. So Envoy's
// routes for GETs of what is stored give them one; see [header.Filled].

const (
	// markEvery is how many bytes of a reply are sent before the next mark.
	markEvery = 16 << 10
	// paceAhead is how many bytes are sent after a mark that has not come back.
	// It also bounds the speed: once in it for each round trip to Envoy.
	paceAhead = 64 << 10
)

// pacePhase is what has become of the request for marks.
type pacePhase uint8

const (
	paceOff      pacePhase = iota // the reply is not paced
	paceSent                      // no answer yet
	paceAnswered                  // the service has answered, but no mark has come back
	paceOpen                      // marks come back
	paceWithout                   // the service has ended its reply: no marks any more
)

// pacer says how far the client has read a reply.
type pacer struct {
	phase  pacePhase
	marked bool // a mark is under way
	sent   int  // bytes of the reply since the last mark
}

func (p *pacer) on() bool { return p.phase != paceOff }

// answered takes the status of the service's reply, and reports whether marks can come
// back.
func (p *pacer) answered(status int) bool {
	if p.phase != paceSent || status != http.StatusOK {
		return false
	}
	p.phase = paceAnswered
	return true
}

// strayed reports whether a status in place of the service's reply is that of an upstream
// which could do nothing with a mark. Other statuses are of filters between this one and
// the router, such as the 429 of a rate limit, or say that no upstream can be reached.
func (p *pacer) strayed(status int) bool {
	if p.phase != paceSent {
		return false
	}
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// behind reports whether the client has not read enough for more to be sent.
func (p *pacer) behind() bool { return p.phase == paceOpen && p.marked && p.sent >= paceAhead }

// came takes marks that came back; end says that none will follow. It reports whether
// the reply to the client can begin: before the first piece of the service's body,
// Envoy takes no body in its place.
func (p *pacer) came(marks int, end bool) (begins bool) {
	begins = p.phase == paceAnswered
	if begins {
		p.phase = paceOpen
	}
	if marks > 0 {
		p.marked = false
	}
	if end {
		p.phase = paceWithout
	}
	return begins
}

// next sends the next mark if it is due.
func (p *pacer) next(to *sender) {
	if p.phase == paceOpen && !p.marked && p.sent >= markEvery {
		p.mark(to)
	}
}

func (p *pacer) mark(to *sender) {
	p.marked, p.sent = true, 0
	to.requestBody([]byte{'.'}, false)
}

// beginPaced sends the client's request on to the service for marks, whose first answer
// begins the reply. It answers at once, or something is wrong with Envoy's routes.
func (x *exchange) beginPaced() {
	x.runner.Timers.Set(run.TimerHandle, x.now, handleTimeout)
	x.pace.begin(&x.to, &x.metadata)
}

// begin sends the client's request on to the service for marks.
func (p *pacer) begin(to *sender, m *metadata) {
	p.phase = paceSent
	head := sentOn([]engine.Header{{Name: header.Engine, Value: header.PacingRoute}}, removedForPacing)
	m.begin(head)
	to.add(head)
	// Envoy sends the headers with the first bytes of the body.
	p.mark(to)
}

// unpaced warns that Envoy can not be held back, once a process for each reason: the first
// sign without it is an Envoy that is out of memory.
type unpaced struct{ route, filler sync.Once }

// canPace reports whether this reply can be held to the pace of its client. If something is
// missing in Envoy's configuration for it, the log says so.
func (x *exchange) canPace() bool {
	metadata, fromEnvoy := grpcmetadata.FromIncomingContext(x.ctx)
	log := x.telemetry.Log

	switch {
	// A socket of package websocket, which holds back its replies by itself, or a replay.
	case !fromEnvoy:
		return false

	// Without a loopback listener the engine's reply is one of Envoy's own upstreams.
	case len(metadata.Get(header.Pacing)) == 0 && x.s.o.Client == nil:
		return false

	case len(metadata.Get(header.Pacing)) == 0:
		x.s.unpaced.route.Do(func() {
			log.Warn("Replies are not paced: of a client that does not read, Envoy keeps the whole reply in its " +
				"memory, some 250 bytes a token. Its configuration has no pacing route, or its ext_proc filter does " +
				"not say so by the metadata " + header.Pacing + ". Add them, or limit the requests of each client " +
				"where a gateway cannot have them (see docs/gateways/envoy.md#pacing)")
		})
		return false

	case x.request.bodyless:
		x.s.unpaced.filler.Do(func() {
			log.Warn("What is stored is not paced: Envoy's configuration has the pacing route, and not the Lua " +
				"filter that gives a body to GETs of what is stored. Of a client that does not read, Envoy keeps " +
				"the whole reply in its memory (see docs/gateways/envoy.md#pacing)")
		})
		return false
	}
	return true
}

// errNotPaced is for the operator: the client can do nothing about it.
var errNotPaced = errors.New("the request for marks came to another upstream than the pacing route's: Envoy's " +
	"ext_proc filter has the metadata " + header.Pacing + ", and no route for pacing stands before the others " +
	"(docs/gateways/envoy.md#pacing)")

// paces reports whether Envoy has the route for marks. ctx is that of its stream.
func paces(ctx context.Context) bool {
	return len(grpcmetadata.ValueFromIncomingContext(ctx, header.Pacing)) > 0
}
