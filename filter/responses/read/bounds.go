package read

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// The stored items that a request brings into its prompt are bounded like its body:
// in bytes of the items' JSON, before anything is made of them.

// madeOfStored is how many bytes of memory are made of stored items, for each byte of their JSON,
// of which the store has taken room: texts without escapes, and what is stored or answered of
// them again.
const madeOfStored = 2

// bringIn takes room for what is made of so many bytes of stored items.
func (r *itemReader) bringIn(param string, bytes int) *apierror.Error {
	if err := r.count(param, bytes); err != nil {
		return err
	}
	return r.rc.Room(madeOfStored * bytes)
}

// count refuses a request whose stored items have too many bytes. The items of a
// remembered chain are counted too, so that what is refused does not depend on what
// is remembered.
func (r *itemReader) count(param string, bytes int) *apierror.Error {
	if r.storedBytes += bytes; r.storedBytes > r.rc.Limits.Bytes {
		return apierror.New(http.StatusBadRequest, stored.CodeTooLarge, param,
			"The stored items of the request, those of its conversation, of the responses that it continues and "+
				"of each item_reference, have more than %d bytes. Refer to fewer items, or begin another "+
				"conversation. (The operator can raise limits.max_conversation_bytes.)", r.rc.Limits.Bytes)
	}
	return nil
}

// fetchBatch is how many items are read from the store before their size is checked. Each
// further batch has twice as many: for each of them the store reads the whole responses that
// have the items, which may be the same ones.
const fetchBatch = 16

// fetch reads stored items for the input. An item whose id occurs several times counts as often.
func (r *itemReader) fetch(ctx context.Context, ids []string) (map[string]store.Item, *apierror.Error) {
	// An item that is referred to many times is read once and copied as often.
	times := make(map[string]int, len(ids))
	var distinct []string
	for _, id := range ids {
		times[id]++
		if times[id] == 1 {
			distinct = append(distinct, id)
		}
	}

	found := make(map[string]store.Item, len(distinct))
	for size := fetchBatch; len(distinct) > 0; size *= 2 {
		batch := distinct[:min(size, len(distinct))]
		distinct = distinct[len(batch):]
		items, err := r.reader.Store.Items(ctx, r.rc.Tenant, batch)
		if err != nil {
			return nil, stored.Unavailable(err)
		}

		// The batches grow, so that an input of many references takes few reads, and one that is too large
		// is refused after a small one.
		bytes := 0
		for id, i := range items {
			bytes += times[id] * len(i.JSON)
			found[id] = i
		}

		if err := r.bringIn("input", bytes); err != nil {
			return nil, err
		}
	}

	return found, nil
}
