package request

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Conversation is the conversation of a request, as the reply needs it.
type Conversation interface {
	// Items are items of the reply as the model sees them.
	Items(made []Made) ([]turn.Item, *apierror.Error)
	// Remember remembers what the conversation has come to with a response that has been
	// stored.
	Remember(ctx context.Context, r *store.Response)
}

// Made is an item of a reply.
type Made struct {
	ID   string
	Kind item.Kind
	JSON []byte      // nil: it is not complete, or clients do not see it
	View []turn.Item // what the model sees of it, where the JSON does not have that

	// Carried is that a carrier of the reply has it.
	Carried bool
}

// Stored is the item as it is stored, without what the model sees in its place.
func (m *Made) Stored() store.Item { return store.Item{ID: m.ID, JSON: m.JSON} }
