package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflight is what a reply does before its first model call: servers list their
// tools, and calls are made that the client has approved.
type preflight struct {
	unlisted    []*hostedServer // that list their tools
	approved    []approvedCall
	compacts    bool // the conversation is compacted, and nothing else is to be done
	preparation preparation
}

// preparation prepares model calls of a reply that has begun. It is not safe for
// concurrent use: of its jobs only one may run at a time.
type preparation interface {
	// Offer offers the tools that the servers have listed by now to the model, and notes
	// in the request what came of it.
	Offer(r *Asked) *apierror.Error
	// First is the job that prepares the first model call, behind items that the reply has
	// made. Its result is a *prepared.
	First(made []turn.Item) api.Job
	// AfterCompaction is the job that prepares the model call behind the compaction with
	// which the reply begins; nil: there is none, because the model has written no summary.
	// Its result is a *turn.Turn.
	AfterCompaction(made *store.Item) api.Job
}

// prepared is a token request that a preparation has made.
type prepared struct {
	turn       *turn.Turn
	compaction *compaction // it asks for a summary, so that the conversation can be compacted before the reply; nil: it does not
	required   bool        // without the summary the conversation is too long
}

// verdict is what the request says of a call that needs approval.
type verdict struct {
	request  string // id of the mcp_approval_request
	approved bool
	reason   string
	at       string // where it is in the request
}

// approvedCall is a call about which the request has a verdict.
type approvedCall struct {
	verdict
	server    *hostedServer
	label     string
	name      string
	arguments string
}
