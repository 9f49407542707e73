package responses

import (
	"context"
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// What of the store a request brings into its prompt is bounded like its body:
// in bytes of the items' JSON, before anything is made of them.

// bringIn takes room for so many bytes of stored items.
func (d *decoder) bringIn(param string, bytes int) *apierror.Error {
	if err := d.count(param, bytes); err != nil {
		return err
	}
	return d.reserve(bytes)
}

// count refuses a request whose stored items have too many bytes. What a
// remembered chain has is counted too: what is refused does not depend on what
// is remembered.
func (d *decoder) count(param string, bytes int) *apierror.Error {
	if d.stored += bytes; d.stored > d.scope.Limits.Bytes {
		return apierror.New(http.StatusBadRequest, codeTooLarge, param,
			"The stored items of the request, those of its conversation, of the responses that it continues and of each item_reference, have more than %d bytes. Refer to fewer items, or begin another conversation. (The operator can raise limits.max_conversation_bytes.)", d.scope.Limits.Bytes)
	}
	return nil
}

// reserve takes room for bytes that are read of the store.
func (d *decoder) reserve(bytes int) *apierror.Error {
	if d.scope.Hold == nil {
		return nil
	}
	return d.scope.Hold(bytes)
}

const codeTooLarge = "conversation_too_large"

// itemBytes is how many bytes the JSON of items has.
func itemBytes(items ...store.Item) int {
	n := 0
	for i := range items {
		n += len(items[i].JSON)
	}
	return n
}

// responseBytes is how many bytes the items of a response have.
func responseBytes(r *store.Response) int { return itemBytes(r.Input...) + itemBytes(r.Output...) }

// checkRoom refuses items for a conversation that would hold too much with them.
func checkRoom(scope *turn.Scope, param string, held store.Size, more []store.Item) *apierror.Error {
	limits := &scope.Limits
	switch {
	case held.Items+len(more) > limits.Items:
		return apierror.New(http.StatusBadRequest, codeTooLarge, param,
			"The conversation would hold more than %d items. Begin another conversation.", limits.Items)
	case held.Bytes+int64(itemBytes(more...)) > int64(limits.Bytes):
		return apierror.New(http.StatusBadRequest, codeTooLarge, param,
			"The items of the conversation would have more than %d bytes. Begin another conversation. (The operator can raise limits.max_conversation_bytes.)", limits.Bytes)
	}
	return nil
}

// fetchBatch is how many items are read of the store before their size is
// looked at.
const fetchBatch = 16

// fetch reads stored items. One whose id stands there several times counts as
// often.
func (d *decoder) fetch(ctx context.Context, param string, ids []string) (map[string]store.Item, *apierror.Error) {
	times := make(map[string]int, len(ids))
	var distinct []string
	for _, id := range ids {
		times[id]++
		if times[id] == 1 {
			distinct = append(distinct, id)
		}
	}
	found := make(map[string]store.Item, len(distinct))
	for batch := range slices.Chunk(distinct, fetchBatch) {
		items, err := d.api.Store.Items(ctx, d.scope.Tenant, batch)
		if err != nil {
			return nil, storeDown(err)
		}
		bytes := 0
		for id, item := range items {
			bytes += times[id] * len(item.JSON)
			found[id] = item
		}
		if err := d.bringIn(param, bytes); err != nil {
			return nil, err
		}
	}
	return found, nil
}
