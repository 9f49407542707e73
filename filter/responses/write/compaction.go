package write

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A compaction is a model call aside, whose output is a summary of the conversation. It is
// the whole reply, or the reply goes on after it (context_management).

// compacting is the compaction that a reply is, or begins with.
type compacting struct {
	*request.Compaction

	// Of a compaction with which the reply begins. item is nil where the compaction is the
	// whole reply.
	item        *outputItem
	preparation request.Preparation
	required    bool // the conversation is too long without it
}

// takeSummary takes an event of the model's turn. A client that waits for the reply after
// the compaction is told that the summary grows.
func (e *encoder) takeSummary(dst []byte, event turn.Event) []byte {
	if grown := e.summary.Event(event); !grown || e.compaction.item == nil {
		return dst
	}

	e.events.Dst = dst
	e.events.itemStep(e.compaction.item, ".compacting")
	return e.take()
}

// sealSummary returns the model's summary as the encrypted_content of a compaction.
func (e *encoder) sealSummary() (string, *apierror.Error) {
	calls := e.reply.Calls()
	text, failed := e.summary.Text(e.reply.Choice(0).Finish(), "max_output_tokens", calls[len(calls)-1].Output)
	if failed != nil {
		return "", failed
	}

	plain := append(binary.AppendUvarint(nil, uint64(e.compaction.Room)), text...)
	sealed, err := e.compaction.Sealer.Seal(seal.Compaction, e.request.Context.Tenant, plain)
	if err != nil {
		return "", apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(
			fmt.Errorf("seal a compaction: %w", err))
	}

	return sealed, nil
}

// endCompaction is the stage that ends a reply that is a compaction: the model's summary
// becomes the one item of the output. No turn follows.
func (e *encoder) endCompaction(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	sealed, err := e.sealSummary()
	if err != nil {
		return dst, reply.Step{}, err
	}

	id := e.request.Context.NewID("cmp_")
	json := jsontext.AppendString([]byte(`{"type":"compaction","id":`), id)
	json = jsontext.AppendString(append(json, `,"encrypted_content":`...), sealed)
	json = append(json, '}')
	e.output.made = append(e.output.made, request.Made{ID: id, JSON: json})
	e.output.count++

	e.events.Dst = dst
	if e.events.stream {
		e.events.itemWhole(0, ".added", json)
		e.events.itemWhole(0, ".done", json)
	}

	return e.take(), reply.Step{}, nil
}

// beginFirst begins the first model call of a reply. Where that is for a summary, the item
// of the compaction begins.
func (e *encoder) beginFirst(dst []byte, first *request.Prepared, p request.Preparation) []byte {
	switch {
	case e.request.Options.PrepareOnly:
		prepareOnly(e, first.Turn)
		return dst
	case first.Compaction == nil:
		e.beginTurn(first.Turn)
		return dst
	}

	it := &outputItem{Output: item.Output{
		Kind: item.Compaction,
		ID:   e.request.Context.NewID(item.Compaction.Names().Prefix),
	}}
	e.compaction = &compacting{Compaction: first.Compaction, item: it, preparation: p, required: first.Required}
	e.output.place(it)
	e.events.Dst = dst
	e.events.itemAdded(it)
	e.starts(first.Turn)
	e.reply.BeginAside(first.Turn, e.takeSummary, e.endFirst)

	return e.take()
}

// endFirst is the stage that ends the compaction with which a reply begins, and prepares
// the model call for the reply itself. A summary that was not written is left out if the
// conversation is short enough without it.
func (e *encoder) endFirst(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	c := e.compaction
	// nil: there is no summary.
	var compacted *store.Item
	sealed, err := e.sealSummary()
	switch {
	case err == nil:
		c.item.Sealed = sealed
		e.output.add(c.item, item.StatusCompleted)
		made := e.output.made[c.item.slot]
		compacted = &store.Item{ID: made.ID, JSON: made.JSON}

		e.events.Dst = dst
		e.events.itemDone(c.item, made.JSON)
		dst = e.take()
	case c.required || e.events.stream:
		// The client has seen the item begin.
		return dst, reply.Step{}, err
	default:
		e.reply.Note(err)
		e.output.made, e.output.count = e.output.made[:c.item.slot], e.output.count-1
	}

	e.compaction = nil
	// The preparation adds the compaction itself.
	e.prompted = len(e.output.made)
	done := func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
		t, ok := result.(*turn.Turn)
		if !ok {
			return dst, request.OfInput(reply.Failure(err))
		}
		e.beginTurn(t)
		return dst, nil
	}

	prepare := reply.Job{Do: c.preparation.AfterCompaction(compacted), Done: done}
	return dst, reply.Step{Jobs: []reply.Job{prepare}}, nil
}

// appendCompaction appends the object that answers a request for a compaction.
func (o *responseObject) appendCompaction(dst []byte) []byte {
	q := o.request
	dst = jsontext.AppendString(append(dst, `{"id":`...), q.ResponseID)
	dst = strconv.AppendInt(append(dst, `,"object":"response.compaction","created_at":`...), q.Created, 10)
	dst = append(dst, `,"output":[`...)
	dst = slices.Grow(dst, q.Compaction.RetainedBytes())
	for _, message := range q.Compaction.Retained {
		dst = append(append(dst, message...), ',')
	}

	dst = append(o.encoder.output.append(dst), `],"usage":`...)

	used := o.encoder.usage()
	return append(used.append(dst, q.Options.UsagePerTurn), '}')
}
