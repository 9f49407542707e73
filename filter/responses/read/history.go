package read

import (
	"context"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// history is the stored part of a conversation: what the request continues, what
// it refers to, and what it adds.
type history struct {
	// chain is what is remembered of the previous response; nil: nothing.
	chain *chain
	// lock is nil where no conversation is locked. earlier are the conversation's items.
	lock    *request.Lock
	earlier []store.Item

	// references are the stored items that the input refers to, and missing the ids of those
	// that are not stored.
	references map[string]*reference
	missing    []string

	// added is the input, as it is stored.
	added []store.Item

	// items is how many of the decoder's items are stored ones. Of the calls among them,
	// waiting have no output and outputs have one; both are nil until they are needed.
	items   int
	waiting map[string]bool
	outputs map[string]bool
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

	// Where nothing is added there is nothing to exclude others from. Who has a prompt prepared sends its
	// items again, with the request that is answered.
	if d.fields.store && !d.rc.Unbounded && !d.fields.options.PrepareOnly {
		l := &request.Lock{Store: d.reader.Store, Tenant: d.rc.Tenant, Conversation: id, Response: d.id}
		if err := l.Acquire(ctx); err != nil {
			return ofConversation(stored.ConversationError(id, err))
		}
		d.history.lock = l
	}

	// One more than there may be, so that too many do not look like just enough.
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
	// What comes before is the stored part, of which clients repeat calls: see isRepeat.
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
	found, err := d.items.findSteps(ctx, v)
	if err != nil {
		return err
	}

	// A compaction rebuilds the conversation, so that a list of them would cost its square: only the
	// last one does.
	last := d.lastCompaction(v)

	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		d.items.compacting.superseded = i < last
		for _, it := range found.left[i] {
			if err := d.addItem(it, nil); err != nil {
				return err
			}
		}
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
		if view, ok := found.views[i]; ok {
			it.ModelView = view
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

	// A trigger is no part of the conversation: later requests must not compact at the same place.
	if d.keeps() && it.Kind != "compaction_trigger" {
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
