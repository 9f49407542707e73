package extproc

import (
	"context"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// incoming is an event of an exchange that is none of its run: one of the types of this file,
// *inflated, *handled, or *storedEvents. Each is a pointer, or a struct of one: as an interface it
// allocates nothing.
type incoming interface{ incoming() }

// envoyMessage is the next message of Envoy.
type envoyMessage struct{ of *extprocv3.ProcessingRequest }

// streamEnded says why no more messages of Envoy come.
type streamEnded struct{ err error }

// dropped says that the request has to make room for others: with its body, or with the stored
// answer that its client reads. err is for the client.
type dropped struct{ err *apierror.Error }

// interrupted says that the client does not want more of the reply, and goes on to read it.
type interrupted struct{ why api.Interruption }

// aborted says that the time of the drain is over.
type aborted struct{}

func (envoyMessage) incoming()  {}
func (streamEnded) incoming()   {}
func (dropped) incoming()       {}
func (aborted) incoming()       {}
func (*interrupted) incoming()  {}
func (*inflated) incoming()     {}
func (*handled) incoming()      {}
func (*storedEvents) incoming() {}

// inbox is the way of other goroutines to an exchange.
type inbox struct {
	ctx context.Context //nolint:containedctx // that of the stream from Envoy, of the same life
	in  chan incoming
}

// newInbox returns an inbox without a buffer: an event that is sent is one that is taken.
func newInbox(ctx context.Context) inbox { return inbox{ctx, make(chan incoming)} }

// send delivers an event to the exchange, and reports whether it takes it.
func (i inbox) send(e incoming) bool {
	select {
	case i.in <- e:
		return true
	case <-i.ctx.Done():
		return false
	}
}
