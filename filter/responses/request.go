package responses

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Request is a decoded request for a response.
type Request struct {
	api     *API
	rc      *turn.RequestContext
	id      string
	model   string // as requested
	created int64  // Unix time in seconds
	options options
	ignored []string
	fixed   []byte // the members of the response object that follow from the request, without the first comma

	turn      *turn.Turn // nil until the preflight is complete
	preflight *preflight // nil: the model can be called at once
	tools     calledTools
	maxOutput int          // tokens of all model calls together; 0: the request sets no limit
	sealer    *seal.Sealer // nil: reasoning has no encrypted_content

	storage    storage
	lock       *lock       // nil: no conversation is locked
	compaction *compaction // nil: the reply is the model's own
	continued  usage       // of the requests before this one that have made the same response
	queued     int         // events of a background response that are stored before it is made
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

// calledTools are the tools of a request that are called here, and what their
// calls need.
type calledTools struct {
	hosted    map[hosted.Space]*hostedServer
	custom    map[toolName]bool      // the client's own tools that take text
	actions   map[toolName]item.Kind // the items that calls of the client's other tools become
	maxCalls  int                    // made here; 0: the request sets no limit
	container string                 // the session in which the built-in tools of the conversation run
	pages     item.Pages             // that an answer can cite

	named    map[string]bool // functions of a namespace that the client calls functions
	search   *toolSearch     // nil: there is no tool search
	deferred []deferredTool
	loaded   map[toolName]bool // tools that a search has found
}

// toolName is a tool by the client's names.
type toolName struct{ namespace, name string }

// storage is how the response is stored.
type storage struct {
	wanted   bool         // the response is stored
	previous string       // the response that it continues
	input    []store.Item // of the response
	chain    *chain       // what is remembered of the responses that it continues; nil: nothing
	version  int64        // of the stored response that is made anew; 0: the response is new
}

// ID is the id of the response.
func (r *Request) ID() string { return r.id }

// Engine is the first model call; nil where a step of the reply comes before it.
func (r *Request) Engine() *engine.Request {
	if r.turn == nil {
		return nil
	}
	return r.turn.Engine
}

// Affinity is what the engine's replica is chosen by, once there is a model call.
func (r *Request) Affinity() turn.Affinity {
	if r.turn == nil {
		return turn.Affinity{}
	}
	return r.turn.Affinity()
}

// RoutingInfo is for endpoint pickers and access logs.
func (r *Request) RoutingInfo() turn.RoutingInfo {
	if r.turn == nil {
		return turn.RoutingInfo{}
	}
	return r.turn.RoutingInfo()
}

// Stream reports whether the reply is server-sent events. That of a background
// response always is.
func (r *Request) Stream() bool { return r.options.stream }

// KeepAlive is a comment line: the API has no event without a meaning.
func (r *Request) KeepAlive() string { return api.KeepAliveComment }

// Ignored names the request's fields that are accepted without an effect, in the
// order of the request, such as user or text.verbosity.
func (r *Request) Ignored() []string { return r.ignored }

// keptFactor is how many times the reply writes what it repeats of the request: in the
// first two events, in the last one, and in what is stored.
const keptFactor = 4

// Kept implements [api.Keeper].
func (r *Request) Kept() int {
	n := r.turn.Kept() + keptFactor*(len(r.fixed)+stored.ItemBytes(r.storage.input...))
	if r.compaction != nil {
		n += 2 * r.compaction.retainedBytes() // the answer, and what is sent of it
	}
	return n
}

// KeepsOutput implements [api.Accumulator]: the last event of a stream has all of it, and
// it is stored.
func (r *Request) KeepsOutput() bool { return true }

// Continues reports whether the request continues a stored response under the
// response's own id, as Codex compatibility mode does.
func (r *Request) Continues() bool { return r.storage.version > 0 }

// Background reports whether the response is made after its request has been
// answered.
func (r *Request) Background() bool { return r.options.background }

// Follows reports, of a background response, whether its client wants the stream
// now.
func (r *Request) Follows() bool { return r.options.follow }

// Follow is the stream of a background response from its first event.
func (r *Request) Follow() api.Follower {
	return stored.NewFollower(r.api.Store, store.Key{Tenant: r.rc.Tenant, ID: r.id})
}

// Queue stores the response as one that owner makes, with the first events of its
// stream, and returns its key and the object with which the request is answered.
// It must only be called for a background response.
func (r *Request) Queue(ctx context.Context, owner string, lease time.Duration) (store.Key, []byte, *apierror.Error) {
	reply := r.newReply(api.Loop)
	key := store.Key{Tenant: r.rc.Tenant, ID: r.id}
	err := r.api.Store.Put(ctx, key.Tenant, &store.Response{
		ID: r.id, Previous: r.storage.previous, Conversation: r.lock.id(), Version: 1,
		Object: append(reply.object.appendMembers(nil, &ending{status: item.StatusInProgress}), '}'), Input: r.storage.input,
		Live: true, Owner: owner, Lease: lease,
	})
	if err == nil {
		reply.begin()
		r.queued = reply.Sequence()
		if err = r.api.Store.Append(ctx, key.Tenant, key.ID, owner, store.Batch{First: 0, Last: r.queued - 1, SSE: reply.events.Dst}); err != nil {
			_ = r.api.Store.Delete(context.WithoutCancel(ctx), key.Tenant, key.ID) // else it fails when the lease ends
		}
	}
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return key, nil, apierror.New(http.StatusRequestEntityTooLarge, "response_too_large", "input", "The request is too large for the store of responses. Send less, or leave background out.")
	case err != nil:
		return key, nil, stored.Unavailable(err)
	}
	return key, reply.object.append(nil, &ending{status: item.StatusQueued}), nil
}
