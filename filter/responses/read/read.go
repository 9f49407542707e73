// Package read reads requests for a response: from the bytes of a body to a
// [request.Request], whose first model call is prepared as far as that can be done before
// the reply begins.
//
// [Reader] is the door. For each body it makes a decoder, which reads in this order: the
// fields, the stored items that they bring in (a conversation, the responses that the
// request continues, the items that it refers to), the input, and then the token request of
// the turn. What is wrong is a 400 that names the field. Whatever a request can make large
// is bounded before it is read, and reading takes steps of the request's account of work.
//
// The decoder lives on where servers have to list their tools, calls are made that the
// client has approved, or the conversation is compacted: it is then the reply's
// [request.Preparation]. It knows nothing of replies, events and jobs of tools.
//
// The tables of fields and of the members of items are those of docs/compatibility.md,
// which a test compares.
package read

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Reader reads requests for responses. It is safe for concurrent use.
type Reader struct {
	// Store has responses and conversations; nil: nothing is stored. Chains remembers what
	// responses come to; nil: a chain is read and rendered again at each of its turns.
	Store  store.Store
	Chains *Chains
	// KeptOnly is that Store has nothing but what connections keep of their own.
	KeptOnly bool

	// Sealer opens and seals reasoning; nil: include reasoning.encrypted_content has no
	// effect. Compactor does so with summaries; nil: no conversation is compacted.
	Sealer    *seal.Sealer
	Compactor *seal.Sealer

	// Tools is what the configuration says about tools, and Servers lets servers list them.
	Tools   hosted.Config
	Servers hosted.Runner

	// What the operator sets for all responses: see [request.Options].
	UsagePerTurn bool

	// ToolTimeout is how long a turn waits for the outputs of its tools in Codex
	// compatibility mode.
	ToolTimeout time.Duration
}

// Repeated is a request that a stored response has answered already, in Codex compatibility
// mode.
type Repeated struct {
	Response *store.Response
	Options  request.Options
}

// Read reads a request for a response.
func (a *Reader) Read(ctx context.Context, body []byte, rc *turn.RequestContext) (*request.Request, *apierror.Error) {
	q, _, err := a.newDecoder(rc).decode(ctx, body)
	return q, err
}

// ReadCodex reads a request for a response in Codex compatibility mode.
func (a *Reader) ReadCodex(
	ctx context.Context, body []byte, rc *turn.RequestContext,
) (*request.Request, *Repeated, *apierror.Error) {
	d := a.newDecoder(rc)
	d.codex = &codexTurn{}
	return d.decode(ctx, body)
}

// ReadCompaction reads a request for a compaction. The reply is one object, and nothing is
// stored.
func (a *Reader) ReadCompaction(
	ctx context.Context, body []byte, rc *turn.RequestContext,
) (*request.Request, *apierror.Error) {
	d := a.newDecoder(rc)
	d.items.compacting.standalone = true
	q, _, err := d.decode(ctx, body)
	return q, err
}
