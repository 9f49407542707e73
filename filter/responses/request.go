package responses

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Asked is a request for a response that has been read.
type Asked struct {
	rc      *turn.RequestContext
	id      string // of the response
	model   string // as requested
	created int64  // Unix time in seconds
	options options
	ignored []string
	echo    []byte // the members of the response object that follow from the request, without the first comma

	turn      *turn.Turn // the last model call that has been prepared; nil until the preflight is complete
	preflight *preflight // nil: the model can be called at once
	tools     calledTools
	maxOutput int          // tokens of all model calls together; 0: the request sets no limit
	sealer    *seal.Sealer // nil: reasoning has no encrypted_content

	storage      storage
	conversation conversation
	lock         *lock       // nil: no conversation is locked
	compaction   *compaction // nil: the reply is the model's own
}

// options is what the reply needs to know of the request.
type options struct {
	stream        bool // events are made
	background    bool
	follow        bool // the client gets the events; of a background response they are made in any case
	hideReasoning bool
	summary       bool // reasoning has a summary, which is its text, and no content
	openReasoning bool // the events of reasoning text have Open Responses' names
	usagePerTurn  bool // the usage lists the model calls
	messages      bool // the response has the Harmony messages
	outputs       bool // code interpreter calls have what the code has printed
	compared      bool // the response says how its prompt continues that of another response
}

// storage is how the response is stored.
type storage struct {
	wanted   bool         // the response is stored
	previous string       // the response that it continues
	input    []store.Item // of the response

	// continued is the stored response that is made anew, as an object, and version its
	// version; 0: the response is new.
	continued []byte
	version   int64
}

// ID is the id of the response.
func (r *Asked) ID() string { return r.id }

// Engine is the first model call; nil where a step of the reply comes before it.
func (r *Asked) Engine() *engine.Request {
	if r.turn == nil {
		return nil
	}
	return r.turn.Engine
}

// Affinity is what the engine's replica is chosen by, once there is a model call.
func (r *Asked) Affinity() turn.Affinity {
	if r.turn == nil {
		return turn.Affinity{}
	}
	return r.turn.Affinity()
}

// RoutingInfo is for endpoint pickers and access logs.
func (r *Asked) RoutingInfo() turn.RoutingInfo {
	if r.turn == nil {
		return turn.RoutingInfo{}
	}
	return r.turn.RoutingInfo()
}

// Stream reports whether the reply is server-sent events. That of a background
// response always is.
func (r *Asked) Stream() bool { return r.options.stream }

// KeepAlive is a comment line: the API has no event without a meaning.
func (r *Asked) KeepAlive() string { return api.KeepAliveComment }

// Ignored names the request's fields that are accepted without an effect, in the
// order of the request, such as user or text.verbosity.
func (r *Asked) Ignored() []string { return r.ignored }

// keptFactor is how many times the reply writes what it repeats of the request: in the
// first two events, in the last one, and in what is stored.
const keptFactor = 4

// Kept implements [api.Keeper].
func (r *Asked) Kept() int {
	n := r.turn.Kept() + keptFactor*(len(r.echo)+stored.ItemBytes(r.storage.input...))
	if r.compaction != nil {
		n += 2 * r.compaction.retainedBytes() // the answer, and what is sent of it
	}
	return n
}

// KeepsOutput implements [api.Accumulator]: the last event of a stream has all of it, and
// it is stored.
func (r *Asked) KeepsOutput() bool { return true }

// Continues reports whether the request continues a stored response under the
// response's own id, as Codex compatibility mode does.
func (r *Asked) Continues() bool { return r.storage.version > 0 }

// Background reports whether the response is made after its request has been
// answered.
func (r *Asked) Background() bool { return r.options.background }

// Follows reports, of a background response, whether its client wants the stream
// now.
func (r *Asked) Follows() bool { return r.options.follow }

// conversation is the conversation of a request, as the reply needs it.
type conversation interface {
	// Items are items of the reply as the model sees them.
	Items(made []madeItem) ([]turn.Item, *apierror.Error)
	// Remember remembers what the conversation has come to with a response that has been
	// stored.
	Remember(ctx context.Context, r *store.Response)
}

// madeItem is an item of a reply.
type madeItem struct {
	id    string
	json  []byte      // nil: it is not complete, or clients do not see it
	items []turn.Item // what the model sees of it, where the JSON does not have that
}

// stored is the item as it is stored, without what the model sees in its place.
func (m *madeItem) stored() store.Item { return store.Item{ID: m.id, JSON: m.json} }

// compaction says that the reply is a compaction of the conversation.
type compaction struct {
	sealer     *seal.Sealer
	room       int      // for users' messages beside it, in bytes
	standalone bool     // the answer is an object of its own
	retained   [][]byte // messages that stay, each written once, however often the input refers to it
}

// retainedBytes is how many bytes the messages that stay have in the answer.
func (c *compaction) retainedBytes() int {
	n := len(c.retained) // commas
	for _, message := range c.retained {
		n += len(message)
	}
	return n
}

// ofInput names this API's field for the conversation in an error of package turn.
func ofInput(err *apierror.Error) *apierror.Error {
	if err.Param != "messages" {
		return err
	}
	e := *err
	e.Param = "input"
	return &e
}

// previousNotFound is the answer to a request that continues a response which is not
// stored. It is a 400, as OpenAI's: only an id in a path is a 404.
func previousNotFound(format string, args ...any) *apierror.Error {
	return apierror.New(http.StatusBadRequest, "previous_response_not_found", "previous_response_id", format, args...)
}

// turnConflict is the answer to a request that differs from the one that has
// continued the turn.
func turnConflict(id string) *apierror.Error {
	return apierror.New(http.StatusConflict, "response_conflict", "previous_response_id",
		"The response %q was continued with other tool outputs. Read it to see its state.", item.Clip(id))
}

// turnGone is the answer to a request that continues a turn that is not stored any
// more when the reply ends.
func turnGone(id string) *apierror.Error {
	return previousNotFound("The response %q was deleted, or has aged, while it was continued. Send the whole conversation as input.", item.Clip(id))
}
