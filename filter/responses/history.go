package responses

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// history is the stored part of a conversation: what the request continues, what
// it refers to, and what it adds.
type history struct {
	chain      *chain                // what is remembered of the previous response; nil: nothing
	lock       *lock                 // nil: no conversation is locked
	earlier    []store.Item          // of the conversation
	references map[string]*reference // the items that the input refers to
	missing    []string              // the ids of those that are not stored
	added      []store.Item          // the input, as it is stored
	items      int                   // how many of the decoder's items are stored ones
	waiting    map[string]bool       // the calls among the stored items without an output; nil: not known yet
	outputs    map[string]bool       // the calls with one; nil: not known yet
}

// addConversation locks the conversation for the response, unless the response is
// not stored, and adds the conversation's items.
func (d *decoder) addConversation(ctx context.Context) *apierror.Error {
	id := d.fields.conversation
	switch {
	case id == "":
		return nil
	case d.fields.previous != "":
		return apierror.New(http.StatusBadRequest, "mutually_exclusive_parameters", "conversation",
			"\"previous_response_id\" and \"conversation\" are two ways to say what came before. Send one of them.")
	case d.reader.Store == nil:
		return apierror.Invalid("conversation", "No conversations are stored. Send the whole conversation as input.")
	}
	if d.fields.store && !d.rc.Unbounded {
		l := &lock{store: d.reader.Store, tenant: d.rc.Tenant, conversation: id, response: d.id}
		if err := l.acquire(ctx); err != nil {
			return ofConversation(stored.ConversationError(id, err))
		}
		d.history.lock = l
	}
	items, err := d.reader.Store.ConversationItems(ctx, d.rc.Tenant, id, store.Page{Limit: d.rc.Limits.Items + 1})
	if err != nil {
		return ofConversation(stored.ConversationError(id, err))
	}
	if err := d.items.bringIn("conversation", stored.ItemBytes(items...)); err != nil {
		return err
	}
	d.history.earlier = items

	return d.items.addAllStored(items, "conversation")
}

// ofConversation names the field of a request for a response in an error about a
// conversation.
func ofConversation(err *apierror.Error) *apierror.Error {
	if err.Param == "" {
		return err
	}
	e := *err
	e.Param = "conversation"
	return &e
}

// addInput adds the items of the input.
func (d *decoder) addInput(ctx context.Context) *apierror.Error {
	v := d.fields.items
	d.history.items = len(d.items.items)
	switch {
	case !v.Exists():
		return nil
	case v.Type == gjson.String:
		return d.addItem(item.UserMessage(v), nil)
	}
	d.items.ownInput = true
	if err := d.findReferences(ctx, v); err != nil {
		return err
	}
	last := d.lastCompaction(v)

	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		d.items.compacting.superseded = i < last
		if most := d.rc.Limits.Items; i >= 2*most || len(d.items.items) > most {
			return apierror.Invalid("input", "The conversation has more than %d messages, calls and results.", most)
		}
		it, err := item.Read(v)
		var source *reference
		if err == nil && it.Kind == "item_reference" {
			it, source, err = d.resolve(it)
		}
		if err != nil {
			return err
		}
		if d.codex != nil {
			return d.addCodexItem(it, source)
		}
		return d.addItem(it, source)
	})
}

// lastCompaction returns the index of the last element of an input that is a compaction,
// or refers to one; -1 if none is.
func (d *decoder) lastCompaction(input jsontext.Field) int {
	i, last := 0, -1
	input.ForEach(func(_, v gjson.Result) bool {
		reference := d.history.references[v.Get("id").Str]
		if item.CompactionIn(v) || reference != nil && item.IsCompaction(reference.item) {
			last = i
		}
		i++
		return true
	})

	return last
}

// addItem adds an item of the input, for the model and for the store. source is the
// reference that it is read from; nil if the input has the item itself.
func (d *decoder) addItem(it item.Item, source *reference) *apierror.Error {
	if d.isRepeat(&it) {
		return nil
	}
	if d.stores() && it.Kind != "compaction_trigger" {
		id := strings.Clone(it.ID)
		if id == "" {
			id = d.rc.NewID(item.IDPrefix(it.Kind))
		}
		d.history.added = append(d.history.added, store.Item{ID: id, JSON: source.storedJSON(&it, id)})
	}
	d.items.compacting.source = source
	err := d.items.add(it)
	d.items.compacting.source = nil
	return err
}

// findReferences reads the stored items that the input refers to.
func (d *decoder) findReferences(ctx context.Context, input jsontext.Field) *apierror.Error {
	var ids []string
	input.ForEach(func(_, v gjson.Result) bool {
		if item.IsReference(v) {
			ids = append(ids, v.Get("id").Str)
		}
		return len(ids) <= d.rc.Limits.Items
	})
	if len(ids) == 0 || d.reader.Store == nil {
		return nil
	}
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
		return it, nil, apierror.Invalid(it.At.Path, "No responses are stored, so their items cannot be referred to. Send the item itself.")
	}
	found, ok := d.history.references[it.ID]
	if !ok {
		return it, nil, apierror.New(http.StatusNotFound, stored.CodeItemNotFound, it.At.Path+".id", "%s",
			apierror.One(append([]string{it.ID}, d.history.missing...), "The item %s is not stored (any more). Send the item itself.",
				"The items %s are not stored (any more). Send the items themselves."))
	}
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

// maxNewItems is how many items a request can add to a conversation, as in
// OpenAI's API.
const maxNewItems = 20

// ReadConversationBody reads the body of a request about a conversation. Its items
// are those that the input of a response can have.
func (a *reader) ReadConversationBody(ctx context.Context, body []byte, rc *turn.RequestContext) (stored.Body, *apierror.Error) {
	var read stored.Body
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte(`{}`)
	}
	root, err := jsontext.Parse(body)
	if err != nil {
		return read, err
	}
	if v := root.Get("metadata"); v.Exists() {
		read.Metadata = []byte(`{}`) // what null means
	}
	d := a.newDecoder(rc)
	known := func(key string) bool { return key == "metadata" || key == "items" }
	if err := (jsontext.Field{Result: root}).FieldsOf(known, func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "metadata":
			err := d.fields.readMetadata(v)
			read.Metadata = d.fields.echo.metadata
			return err
		case "items":
			read.HasItems = true
			return d.readNewItems(v)
		}
		return nil
	}); err != nil {
		return read, err
	}
	if err := d.addInput(ctx); err != nil {
		return read, err
	}
	if d.items.compacting.triggered {
		return read, apierror.Invalid("items", "An item of type compaction_trigger is for the input of a response. Leave it out.")
	}
	read.Items = d.history.added
	return read, d.checkIDs("items")
}

// readNewItems notes the items for a conversation.
func (d *decoder) readNewItems(v jsontext.Field) *apierror.Error {
	n := 0
	err := v.Elements(func(int, jsontext.Field) *apierror.Error {
		if n == maxNewItems {
			return apierror.Invalid("items", "The field \"items\" has more than %d items. Send the others in further requests.", maxNewItems)
		}
		n++
		return nil
	})
	d.fields.items = v
	return err
}
