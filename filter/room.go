package filter

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// withRoom has the endpoints take the memory for what they read of the store of their request,
// before it is read. It is here because neither side knows the other: the one that counts memory
// knows no store, and the APIs read the store in many places.
func withRoom(endpoints []api.Endpoint) []api.Endpoint {
	for i := range endpoints {
		handle := endpoints[i].Handle
		endpoints[i].Handle = func(ctx context.Context, r *api.HTTPRequest) api.Outcome {
			return handle(store.WithRoom(ctx, func(bytes int) error {
				// Not returned as it is: it is no nil error where it is a nil pointer.
				if refused := r.Context.Room(bytes); refused != nil {
					return refused
				}
				return nil
			}), r)
		}
	}
	return endpoints
}
