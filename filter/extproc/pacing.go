package extproc

import (
	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
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
// client has read what was sent before it, but for what Envoy's buffer may hold.
// Without it no more than paceAhead is sent: events of the model call wait, and the
// connection to the engine fills up.

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
	paceOff     pacePhase = iota // the reply is not paced
	paceSent                     // no answer yet
	paceOpen                     // marks come back
	paceWithout                  // the service has ended its reply: no marks any more
)

// pacer says how far the client has read a reply.
type pacer struct {
	phase  pacePhase
	marked bool // a mark is under way
	sent   int  // bytes of the reply since the last mark
}

func (p *pacer) on() bool { return p.phase != paceOff }

// connected takes the status of the service's reply, and reports whether the reply to
// the client can begin.
func (p *pacer) connected(status int) bool {
	if p.phase != paceSent || status != 200 {
		return false
	}
	p.phase = paceOpen
	return true
}

// paces reports whether Envoy has the route for marks.
func (x *exchange) paces() bool {
	return len(grpcmetadata.ValueFromIncomingContext(x.ctx, header.Pacing)) > 0
}

// beginPaced makes the reply by a run whose model calls go through the loopback
// listener, and that is held back while the client does not read. The run starts when
// the reply's headers can be sent.
func (x *exchange) beginPaced(request api.Request) {
	x.pace.phase = paceSent
	x.beginRun(request, api.Loop, x.s.o.Client.Dial(x.ctx, x.request.forward, x.target))
	x.sendHead([]engine.Header{{Name: header.Engine, Value: header.PacingRoute}, {Name: "content-length"}}, header.Engine)
	x.sendMark() // Envoy sends the headers with the first bytes of the body
}

// marksCame takes marks that came back.
func (x *exchange) marksCame(n int, end bool) {
	if n > 0 {
		x.pace.marked = false
	}
	if end {
		x.pace.phase = paceWithout
	}
	x.mark()
}

// mark sends the next mark if it is due, and lets the model call wait or go on.
func (x *exchange) mark() {
	p := &x.pace
	if p.phase == paceOpen && !p.marked && p.sent >= markEvery {
		x.sendMark()
	}
	x.runner.Hold(p.phase == paceOpen && p.marked && p.sent >= paceAhead)
}

func (x *exchange) sendMark() {
	x.pace.marked, x.pace.sent = true, 0
	x.to.requestBody([]byte{'.'}, false)
}
