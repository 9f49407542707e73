// Package request is a request for a response, once it has been read: what is between the
// reading of a body and the writing of the reply.
//
// A [Request] is data. Package read makes it, package write answers it, and neither knows
// the other. What a reply needs of the reading side while it is made is said by two
// interfaces, which read implements: [Preparation] prepares model calls that depend on
// what the reply has done first, and [Conversation] reads items of the reply as the model
// sees them, and remembers what the conversation has come to.
//
// The package knows no JSON of requests and no events. It does no I/O, except to lock the
// conversation in the store ([Lock]).
package request

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Request is a request for a response that has been read.
type Request struct {
	// Context is the request's, for as long as the reply is made.
	Context *turn.RequestContext

	// What the response object has of the request. Model is as requested, Created is Unix
	// time in seconds, and Echo is the members that repeat the request, without the first
	// comma.
	ResponseID    string
	Model         string
	Created       int64
	Options       Options
	IgnoredFields []string
	Echo          []byte

	// Turn is the last model call that has been prepared; nil until the preflight is
	// complete. Preflight is nil where the model can be called at once.
	Turn      *turn.Turn
	Preflight *Preflight

	// Tools are those that are called here, and what their calls need.
	Tools toolset.Called
	// MaxOutput bounds the tokens of all model calls together; 0: the request sets no limit.
	MaxOutput int
	// Sealer seals reasoning as encrypted_content; nil: there is none.
	Sealer *seal.Sealer
	// Carrier seals the steps of a turn that has no answer yet, for a client that keeps the
	// conversation itself; nil: the store has them.
	Carrier *seal.Sealer

	// Where the response belongs, and what becomes of it. Lock is nil where no conversation
	// is locked.
	Storage      Storage
	Conversation Conversation
	Lock         *Lock

	// Compaction is nil where the reply is the model's own.
	Compaction *Compaction
}

// Options is what the reply needs to know of the request.
type Options struct {
	// Stream says that events are made, and Follow that the client gets them: those of a
	// Background response are made in any case.
	Stream     bool
	Background bool
	Follow     bool

	// HideReasoning leaves reasoning out. Summary has its text as a summary, and no content.
	// OpenReasoning gives its events the names of Open Responses.
	HideReasoning bool
	Summary       bool
	OpenReasoning bool

	// PrepareOnly says that the prompt is prepared, and that there is no output.
	PrepareOnly bool

	// UsagePerTurn lists the model calls in the usage.
	UsagePerTurn bool
	// Messages adds the Harmony messages to the response.
	Messages bool
	// Outputs adds to code interpreter calls what the code has printed.
	Outputs bool
	// Compared says how the prompt continues that of another response.
	Compared bool
}

// Storage is how the response is stored.
type Storage struct {
	Wanted   bool         // the response is stored
	Local    bool         // it is not, but kept for the requests of its connection
	Previous string       // the response that it continues
	Input    []store.Item // of the response

	// Continued is the stored response that is made anew, as an object, and Version its
	// version; 0: the response is new.
	Continued []byte
	Version   int64
}

// Engine is the first model call; nil where a step of the reply comes before it.
func (r *Request) Engine() *engine.Request {
	if r.Turn == nil {
		return nil
	}
	return r.Turn.Engine
}

// Affinity is what the engine's replica is chosen by, once there is a model call.
func (r *Request) Affinity() turn.Affinity {
	if r.Turn == nil {
		return turn.Affinity{}
	}
	return r.Turn.Affinity()
}

// RoutingInfo is for endpoint pickers and access logs.
func (r *Request) RoutingInfo() turn.RoutingInfo {
	if r.Turn == nil {
		return turn.RoutingInfo{}
	}
	return r.Turn.RoutingInfo()
}

// Ignored names the request's fields that are accepted without an effect, in the
// order of the request, such as user or text.verbosity.
func (r *Request) Ignored() []string { return r.IgnoredFields }

// keptFactor is how many times the reply writes what it repeats of the request: in the
// first two events, in the last one, and in what is stored.
const keptFactor = 4

// Bytes is about how many bytes are kept until the reply has ended.
func (r *Request) Bytes() int {
	n := r.Turn.Bytes() + keptFactor*(len(r.Echo)+stored.ItemBytes(r.Storage.Input...))
	if r.Compaction != nil {
		// The answer, and what is sent of it.
		n += 2 * r.Compaction.RetainedBytes()
	}
	return n
}

// Continues reports whether the request continues a stored response under the
// response's own id, as Codex compatibility mode does.
func (r *Request) Continues() bool { return r.Storage.Version > 0 }

// Follows reports, of a background response, whether its client wants the stream
// now.
func (r *Request) Follows() bool { return r.Options.Follow }
