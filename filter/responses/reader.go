package responses

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// reader reads requests for responses. It is safe for concurrent use.
type reader struct {
	Store     store.Store   // nil: nothing is stored
	Sealer    *seal.Sealer  // nil: include reasoning.encrypted_content has no effect
	Compactor *seal.Sealer  // seals the summaries of compacted conversations; nil: none is compacted
	Chains    *Chains       // nil: a chain is read and rendered again at each of its turns
	Tools     toolConfig    // what the configuration says about tools
	Servers   hosted.Runner // lets servers list their tools

	UsagePerTurn        bool // see API
	OpenReasoningEvents bool

	// ToolTimeout is how long a turn waits for the outputs of its tools in Codex
	// compatibility mode.
	ToolTimeout time.Duration
}

// Repeated is a request that a stored response has answered already, in Codex compatibility
// mode.
type Repeated struct {
	Response *store.Response
	Options  options
}

// Read reads a request for a response.
func (a *reader) Read(ctx context.Context, body []byte, rc *turn.RequestContext) (*Asked, *apierror.Error) {
	request, _, err := a.newDecoder(rc).decode(ctx, body)
	return request, err
}

// ReadCodex reads a request for a response in Codex compatibility mode.
func (a *reader) ReadCodex(ctx context.Context, body []byte, rc *turn.RequestContext) (*Asked, *Repeated, *apierror.Error) {
	d := a.newDecoder(rc)
	d.codex = &codexTurn{}
	return d.decode(ctx, body)
}

// ReadCompaction reads a request for a compaction. The reply is one object, and nothing is
// stored.
func (a *reader) ReadCompaction(ctx context.Context, body []byte, rc *turn.RequestContext) (*Asked, *apierror.Error) {
	d := a.newDecoder(rc)
	d.items.compacting.standalone = true
	request, _, err := d.decode(ctx, body)
	return request, err
}
