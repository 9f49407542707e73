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
	Context *turn.RequestContext
	// ResponseID: of the response.
	ResponseID string
	// As requested.
	Model string
	// Unix time in seconds.
	Created       int64
	Options       Options
	IgnoredFields []string
	// The members of the response object that follow from the request, without the first comma.
	Echo []byte

	// The last model call that has been prepared; nil until the preflight is complete.
	Turn *turn.Turn
	// nil: the model can be called at once.
	Preflight *Preflight
	Tools     toolset.Called
	// Tokens of all model calls together; 0: the request sets no limit.
	MaxOutput int
	// nil: reasoning has no encrypted_content.
	Sealer *seal.Sealer

	Storage      Storage
	Conversation conversation
	// nil: no conversation is locked.
	Lock *Lock
	// nil: the reply is the model's own.
	Compaction *Compaction
}

// Options is what the reply needs to know of the request.
type Options struct {
	// Events are made.
	Stream     bool
	Background bool
	// The client gets the events; of a background response they are made in any case.
	Follow        bool
	HideReasoning bool
	// Reasoning has a summary, which is its text, and no content.
	Summary bool
	// The events of reasoning text have Open Responses' names.
	OpenReasoning bool
	// The usage lists the model calls.
	UsagePerTurn bool
	// The response has the Harmony messages.
	Messages bool
	// Code interpreter calls have what the code has printed.
	Outputs bool
	// The response says how its prompt continues that of another response.
	Compared bool
}

// Storage is how the response is stored.
type Storage struct {
	Wanted   bool         // the response is stored
	Previous string       // the response that it continues
	Input    []store.Item // of the response

	// Continued is the stored response that is made anew, as an object, and version its
	// Version; 0: the response is new.
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

// Kept is about how many bytes are kept until the reply has ended.
func (r *Request) Kept() int {
	n := r.Turn.Kept() + keptFactor*(len(r.Echo)+stored.ItemBytes(r.Storage.Input...))
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
