// Package write writes replies to requests for a response: from the chunks of the engine
// and the results of tools to items, and from items to server-sent events or one response
// object.
//
// A [Request] is a request that has been read, with the [Services] that its reply uses. Its
// [Reply] is a state machine without I/O, which returns model calls and jobs as its steps
// (see the table above Reply). Streams and whole objects are made of the same events.
//
// The package does not know how requests are read. Where a model call depends on what the
// reply has done, [request.Preparation] prepares it, and [request.Conversation] says what
// the model sees of the reply's items.
package write

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Services is what replies use beside the engine.
type Services struct {
	// Store has the responses; nil: nothing is stored.
	Store store.Store
	// Approvals are those of tool calls; nil: an approval is valid any number of times.
	Approvals store.Approvals
	// Servers calls tools.
	Servers hosted.Runner
}

// Request is a request with what its reply uses.
type Request struct {
	*request.Request
	Services *Services
	queued   int // events of a background response that are stored before it is made
}

// Info is what is known of the request.
func (r *Request) Info() api.Info {
	info := api.Info{
		ID:        r.ResponseID,
		Continues: r.Continues(),
		// A background response has events in any case: they are stored.
		Stream: r.Options.Stream,
		// A comment line: the API has no event without a meaning.
		KeepAlive: api.KeepAliveComment,
		// The last event of a stream has all of the output, and it is stored.
		KeepsOutput: true,
	}

	// Not set in place: an interface that holds a nil pointer is not nil.
	if r.Lock != nil {
		info.Lock = r.Lock
	}
	if r.Options.Background {
		info.Background = r
	}
	return info
}

// Follow is the stream of a background response from its first event.
func (r *Request) Follow() api.Follower {
	return stored.NewFollower(r.Services.Store, store.Key{Tenant: r.Context.Tenant, ID: r.ResponseID})
}

// Queue stores the response as one that owner makes, with the first events of its
// stream, and returns its key and the object with which the request is answered.
// It must only be called for a background response.
func (r *Request) Queue(ctx context.Context, owner string, lease time.Duration) (store.Key, []byte, *apierror.Error) {
	// The encoder writes the first events only: another one, which begins after them, makes the reply.
	reply := newEncoder(r, api.Loop)
	key := store.Key{Tenant: r.Context.Tenant, ID: r.ResponseID}
	err := r.Services.Store.Put(ctx, key.Tenant, &store.Response{
		ID: r.ResponseID, Previous: r.Storage.Previous, Conversation: r.Lock.ID(), Version: 1,
		Object: append(reply.object.appendMembers(nil, &ending{status: item.StatusInProgress}), '}'),
		Input:  r.Storage.Input,
		Live:   true, Owner: owner, Lease: lease,
	})
	if err == nil {
		reply.begin()
		r.queued = reply.events.Sequence
		if err = r.Services.Store.Append(ctx, key.Tenant, key.ID, owner, store.Batch{
			First: 0,
			Last:  r.queued - 1,
			SSE:   reply.events.Dst,
		}); err != nil {
			// If it cannot be deleted, the response fails when its lease ends.
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), request.StoreTimeout)
			_ = r.Services.Store.Delete(undo, key.Tenant, key.ID)
			cancel()
		}
	}

	switch {
	// Not the store's failure: the same request would be too large again.
	case errors.Is(err, store.ErrTooLarge):
		return key, nil, apierror.New(http.StatusRequestEntityTooLarge, "response_too_large", "input",
			"The request is too large for the store of responses. Send less, or leave background out.")
	case err != nil:
		return key, nil, stored.Unavailable(err)
	}

	return key, reply.object.append(nil, &ending{status: item.StatusQueued}), nil
}
