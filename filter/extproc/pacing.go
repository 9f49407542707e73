package extproc

import (
	"context"
	"net/http"

	grpcmetadata "google.golang.org/grpc/metadata"

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

// begin sends the client's request on to the service for marks.
func (p *pacer) begin(to *sender, m *metadata) {
	p.phase = paceSent
	head := sentOn([]engine.Header{{Name: header.Engine, Value: header.PacingRoute}}, removedForPacing)
	m.begin(head)
	to.add(head)
	// Envoy sends the headers with the first bytes of the body.
	p.mark(to)
}

// paces reports whether Envoy has the route for marks. ctx is that of its stream.
func paces(ctx context.Context) bool {
	return len(grpcmetadata.ValueFromIncomingContext(ctx, header.Pacing)) > 0
}
