package responses

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// services is what replies use beside the engine.
type services struct {
	Store     store.Store     // nil: nothing is stored
	Approvals store.Approvals // of tool calls; nil: an approval is valid any number of times
	Servers   hosted.Runner   // calls tools
}

// Request is a request with what its reply uses.
type Request struct {
	*Asked
	services *services
	queued   int // events of a background response that are stored before it is made
}

// Follow is the stream of a background response from its first event.
func (r *Request) Follow() api.Follower {
	return stored.NewFollower(r.services.Store, store.Key{Tenant: r.rc.Tenant, ID: r.id})
}

// Queue stores the response as one that owner makes, with the first events of its
// stream, and returns its key and the object with which the request is answered.
// It must only be called for a background response.
func (r *Request) Queue(ctx context.Context, owner string, lease time.Duration) (store.Key, []byte, *apierror.Error) {
	reply := r.newReply(api.Loop)
	key := store.Key{Tenant: r.rc.Tenant, ID: r.id}
	err := r.services.Store.Put(ctx, key.Tenant, &store.Response{
		ID: r.id, Previous: r.storage.previous, Conversation: r.lock.id(), Version: 1,
		Object: append(reply.object.appendMembers(nil, &ending{status: item.StatusInProgress}), '}'), Input: r.storage.input,
		Live: true, Owner: owner, Lease: lease,
	})
	if err == nil {
		reply.begin()
		r.queued = reply.Sequence()
		if err = r.services.Store.Append(ctx, key.Tenant, key.ID, owner, store.Batch{First: 0, Last: r.queued - 1, SSE: reply.events.Dst}); err != nil {
			_ = r.services.Store.Delete(context.WithoutCancel(ctx), key.Tenant, key.ID) // else it fails when the lease ends
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
