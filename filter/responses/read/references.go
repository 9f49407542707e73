package read

import (
	"context"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// findReferences reads the stored items that the input refers to.
func (d *decoder) findReferences(ctx context.Context, input jsontext.Field) *apierror.Error {
	var ids []string
	input.ForEach(func(_, v gjson.Result) bool {
		if item.IsReference(v) {
			ids = append(ids, v.Get("id").Str)
		}
		// An input with more is refused when it is read: the rest is not worth a look.
		return len(ids) <= d.rc.Limits.Items
	})

	if len(ids) == 0 || d.reader.Store == nil {
		return nil
	}

	// All at once: an access to the store for each would be as many round trips as the input has
	// items.
	found, err := d.items.fetch(ctx, ids)
	d.history.references = make(map[string]*reference, len(found))
	for id, i := range found {
		d.history.references[id] = &reference{item: i}
	}

	for _, id := range ids {
		if d.history.references[id] == nil {
			d.history.missing = append(d.history.missing, id)
		}
	}

	return err
}

// reference is a stored item that the input refers to. However often it does, the item
// is read, and written for the store, once.
type reference struct {
	item store.Item
	read item.Item // without a kind: nothing yet
	json []byte    // as the response stores it; nil: nothing yet
}

// storedJSON is an item as it is stored, made once for all references to it. The
// reference may be nil.
func (r *reference) storedJSON(it *item.Item, id string) []byte {
	if r == nil {
		return it.AppendStored(nil, id)
	}
	if r.json == nil {
		r.json = it.AppendStored(nil, id)
	}
	return r.json
}

// resolve returns the item that a reference names.
func (d *decoder) resolve(it item.Item) (item.Item, *reference, *apierror.Error) {
	if d.reader.Store == nil {
		return it, nil, apierror.Invalid(it.At.Path,
			"No responses are stored, so their items cannot be referred to. Send the item itself.")
	}

	found, ok := d.history.references[it.ID]
	if !ok {
		return it, nil, apierror.New(http.StatusNotFound, stored.CodeItemNotFound, it.At.Path+".id", "%s",
			apierror.One(append([]string{it.ID}, d.history.missing...),
				"The item %s is not stored (any more). Send the item itself.",
				"The items %s are not stored (any more). Send the items themselves."))
	}

	// However often the input refers to an item, its JSON is parsed once.
	if found.read.Kind == "" {
		read, err := item.ReadStored(found.item, it.At.Path)
		if err != nil {
			return it, nil, err
		}
		found.read = read
	}

	// Each reference is a few bytes of the request, and has all that the item says made anew:
	// texts are copied, and tools read.
	if err := d.rc.Spend(it.At.Path, 1+len(found.item.JSON)/referredStepBytes); err != nil {
		return it, nil, err
	}

	read := found.read
	read.At.Path = it.At.Path
	return read, found, nil
}

// checkIDs refuses items of the request that have the id of another, or of an item
// of the conversation.
func (d *decoder) checkIDs(param string) *apierror.Error {
	h := &d.history
	ids := make(map[string]bool, len(h.earlier)+len(h.added))
	for _, it := range h.earlier {
		ids[it.ID] = true
	}

	var twice []string
	for _, it := range h.added {
		if ids[it.ID] {
			twice = append(twice, it.ID)
		}
		ids[it.ID] = true
	}

	if twice != nil {
		return stored.DuplicateItems(param, twice)
	}

	return nil
}
