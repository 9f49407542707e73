package write

import (
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// inlineCompaction is the compaction with which a reply begins.
type inlineCompaction struct {
	preparation request.Preparation
	required    bool // the conversation is too long without it
	item        *outputItem
}

// beginFirst begins the first model call of a reply. Where that is for a summary, the item
// of the compaction begins.
func (r *Reply) beginFirst(first *request.Prepared, p request.Preparation) {
	if first.Compaction != nil {
		it := &outputItem{Output: item.Output{Kind: item.Compaction, ID: r.request.Context.NewID(item.Compaction.Names().Prefix)}}
		r.compaction = &compaction{first.Compaction, &inlineCompaction{preparation: p, required: first.Required, item: it}}
		r.output.place(it)
		r.events.itemAdded(it)
	}
	r.beginCall(first.Turn)
}

// grown says that the summary has grown. c may be nil.
func (c *inlineCompaction) grown(r *Reply, e turn.Event) {
	if c == nil || e.Step != turn.Delta || e.Kind != turn.Answer && e.Kind != turn.Preamble {
		return
	}
	r.events.itemStep(c.item, ".compacting")
}

// endStep ends the compaction, and prepares the model call for the reply itself. A
// summary that was not written is left out if the conversation is short enough without
// it.
func (c *inlineCompaction) endStep(r *Reply) (api.Step, *apierror.Error) {
	var compacted *store.Item // nil: there is no summary
	sealed, err := r.compaction.seal(r)
	switch {
	case err == nil:
		c.item.Sealed = sealed
		r.output.add(c.item, item.StatusCompleted)
		made := r.output.made[c.item.slot]
		r.events.itemDone(c.item, made.JSON)
		compacted = &store.Item{ID: made.ID, JSON: made.JSON}
	case c.required || r.events.stream: // the client has seen the item begin
		return api.Step{}, err
	default:
		r.fault = errors.Join(r.fault, err)
		r.output.made, r.output.count = r.output.made[:c.item.slot], r.output.count-1
	}
	r.compaction = nil
	r.model.count()
	r.model.compacted = r.model.usage.total().output
	r.steps.prompted = len(r.output.made)
	job := stepJob{c.preparation.AfterCompaction(compacted), func(result any, err error) {
		if t, ok := result.(*turn.Turn); ok {
			r.beginCall(t)
			return
		}
		r.steps.err = request.OfInput(jobError(err))
	}}
	return r.runJobs([]stepJob{job}, (*Reply).callStep)
}
