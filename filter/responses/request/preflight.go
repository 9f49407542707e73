package request

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Preflight is what a reply does before its first model call: servers list their
// tools, and calls are made that the client has approved.
type Preflight struct {
	Unlisted    []*hosted.Server // that list their tools
	Approved    []ApprovedCall
	Compacts    bool // the conversation is compacted, and nothing else is to be done
	Preparation Preparation
}

// Preparation prepares model calls of a reply that has begun. It is not safe for
// concurrent use: of its jobs only one may run at a time.
type Preparation interface {
	// Offer offers the tools that the servers have listed by now to the model, and notes
	// in the request what came of it.
	Offer(r *Request) *apierror.Error
	// First is the job that prepares the first model call, after items that the reply has
	// made. Its result is a *prepared.
	First(made []turn.Item) api.Job
	// AfterCompaction is the job that prepares the model call after the compaction with
	// which the reply begins; nil: there is none, because the model has written no summary.
	// Its result is a *turn.Turn.
	AfterCompaction(made *store.Item) api.Job
}

// Prepared is a token request that a preparation has made.
type Prepared struct {
	Turn *turn.Turn
	// Compaction says that the turn asks for a summary, so that the conversation can be
	// compacted before the reply; nil: it is the reply's own.
	Compaction *Compaction
	// Required says that the conversation is too long without the summary.
	Required bool
}

// Verdict is what the request says of a call that needs approval.
type Verdict struct {
	RequestID string // id of the mcp_approval_request
	Approved  bool
	Reason    string
	At        string // where it is in the request
}

// ApprovedCall is a call about which the request has a verdict.
type ApprovedCall struct {
	Verdict
	Server    *hosted.Server
	Label     string
	Name      string
	Arguments string
}

// Compaction says that the reply is a compaction of the conversation.
type Compaction struct {
	Sealer *seal.Sealer
	// Room is for users' messages beside the summary, in bytes.
	Room int

	// Standalone says that the answer is an object of its own. Retained are the messages that
	// stay, each written once, however often the input refers to it.
	Standalone bool
	Retained   [][]byte
}

// RetainedBytes is how many bytes the messages that stay have in the answer.
func (c *Compaction) RetainedBytes() int {
	// Each has a comma after it.
	n := len(c.Retained)
	for _, message := range c.Retained {
		n += len(message)
	}
	return n
}
