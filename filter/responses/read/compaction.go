package read

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A compaction puts an item in the place of a conversation. The model itself writes
// a summary, which is sealed as the item's encrypted_content. In later input the
// item is replaced by the summary, and everything before it is left out but
// instructions and the newest of the users' messages.
//
// There are two ways to ask for one. [CompactPath] answers with the users' messages
// and the item. An item compaction_trigger at the end of the input of a response
// makes the item the response's only output.

// compacting is what an itemReader knows of compaction.
type compacting struct {
	standalone bool       // the request is one for CompactPath
	triggered  bool       // the conversation is to be compacted
	retained   [][]byte   // of a standalone one: the messages that stay
	source     *reference // of the item that is being added; nil: it is none

	// superseded says that a compaction follows the item being added in the same list. It
	// replaces what this one would leave, and each of them rebuilds the conversation: only
	// the last one of a list does.
	superseded bool
}

// checkStandalone checks the fields of a request that is for a compaction only.
func (d *decoder) checkStandalone() *apierror.Error {
	if !d.items.compacting.standalone {
		return nil
	}

	d.items.compacting.triggered, d.fields.store = true, false
	switch {
	case d.fields.options.Stream:
		return apierror.Invalid("stream", "A compaction is one object. Leave stream out.")
	case d.fields.options.Background:
		return apierror.Invalid("background", "A compaction cannot be made in the background. Leave background out.")
	case d.fields.options.Messages:
		return apierror.Invalid("enable_response_messages",
			"A compaction has no Harmony messages in it. Leave enable_response_messages out.")
	}

	return nil
}

// addTrigger notes that the conversation is to be compacted.
func (r *itemReader) addTrigger(item.Item) *apierror.Error {
	r.compacting.triggered = true
	return nil
}

// checkTrigger refuses what follows a compaction_trigger.
func (r *itemReader) checkTrigger(it item.Item) *apierror.Error {
	if r.compacting.triggered && !r.compacting.standalone {
		return apierror.Invalid(it.At.Path, "An item of type compaction_trigger must be the last one of the input.")
	}
	return nil
}

// addCompaction adds the summary of a compaction.
func (r *itemReader) addCompaction(it item.Item) *apierror.Error {
	if r.compacting.superseded {
		return nil
	}
	if it.Encrypted == "" {
		return apierror.Invalid(it.At.Path+".encrypted_content", "A compaction has no encrypted_content.")
	}

	foreign := apierror.Invalid(it.At.Path+".encrypted_content",
		"The compaction was not made by this service, or its key is gone. Send the items that it replaced, or a "+
			"summary as a message.")
	if r.reader.Compactor == nil {
		return foreign
	}

	// A summary of another tenant, or of another service, is refused: it would be somebody else's
	// text in the place of a conversation.
	sealed, err := r.reader.Compactor.Open(seal.Compaction, r.rc.Tenant, it.Encrypted)
	room, n := binary.Uvarint(sealed)
	if err != nil || n <= 0 {
		return foreign.With(err)
	}
	if err := r.forget(int(room)); err != nil {
		return err
	}

	r.addTurn(compaction.Item(string(sealed[n:]), it.At.Path))

	return nil
}

// messageBytes is what a message takes of the room for users' messages beside its
// text.
const messageBytes = 16

// forget removes what a compaction replaces: all but instructions and the newest
// users' messages that have room, the last of which is shortened where that leaves
// something of it. The summary of an earlier compaction is removed too.
func (r *itemReader) forget(room int) *apierror.Error {
	if err := r.unfold(); err != nil {
		return err
	}
	// Each compaction goes through all items, and an input can have thousands of them.
	if err := r.rc.Spend("input", len(r.items)); err != nil {
		return err
	}

	var kept []turn.Item
	for _, it := range slices.Backward(r.items) {
		switch {
		case it.Kind == turn.Instructions, it.Kind == turn.Tools:
			kept = append(kept, it)
		case it.Kind == turn.User && !it.Summary:
			size := room - messageBytes
			if size < min(len(it.Text), compaction.ShortestText) {
				room = 0
				continue
			}
			// A message that is shortened takes all the room that is left.
			it.Text = compaction.Shorten(it.Text, size)
			room = size - len(it.Text)
			kept = append(kept, it)
		}
	}

	slices.Reverse(kept)
	r.items, r.open = kept, nil
	return nil
}

// userRoom is how many bytes of users' messages stay beside a compaction made for
// the model: an eighth of its context, at four bytes a token. It is sealed with the
// summary, so that the conversation is the same for every model that continues it.
func userRoom(m *turn.Model) int {
	return cmp.Or(m.ContextLength, turn.DefaultContextLength) / 8 * 4
}

// retain notes a message that stays beside the compaction. What the assistant said
// is in the summary.
func (r *itemReader) retain(it *item.Item) {
	if !r.compacting.standalone || it.Kind != "message" || it.Role == "assistant" {
		return
	}
	id := it.ID
	if id == "" {
		id = r.rc.NewID(item.IDPrefix(it.Kind))
	}
	r.compacting.retained = append(r.compacting.retained, r.compacting.source.storedJSON(it, id))
}

// finishCompaction ends the conversation with the request for its summary.
func (d *decoder) finishCompaction() *apierror.Error {
	if !d.items.compacting.triggered {
		return nil
	}
	if d.reader.Compactor == nil {
		return apierror.Invalid("input", "Compaction is not configured here. Send a summary as a message.")
	}

	// A summary has no form, no calls and no stop strings of the answer's.
	compaction.AskOnly(&d.fields.input)
	// Long texts may have to be shortened.
	if err := d.items.unfold(); err != nil {
		return err
	}

	d.items.addTurn(turn.Item{Kind: turn.User, Text: compaction.Ask(compaction.KeptMessages)})

	return nil
}

// compaction is what the reply needs to know; nil where the conversation is
// not to be compacted.
func (d *decoder) compaction() *request.Compaction {
	c := &d.items.compacting
	if !c.triggered {
		return nil
	}
	return &request.Compaction{
		Sealer:     d.reader.Compactor,
		Room:       userRoom(d.rc.Model),
		Standalone: c.standalone,
		Retained:   c.retained,
	}
}
