package responses

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// With context_management a response begins with a compaction if its prompt is longer
// than a threshold. The first model call writes the summary. The compaction is the first
// item of the output, and the second model call has it in the place of the conversation,
// as every later request has.

// readContextManagement reads when the conversation is to be compacted.
func (f *fieldReader) readContextManagement(v jsontext.Field) *apierror.Error {
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if kind := v.Get("type").Str; kind != "compaction" {
			return apierror.Invalid(v.Path+".type", "The only type of context management is compaction.")
		}
		threshold := turn.DefaultContextLength / 4 * 3
		if length := f.rc.Model.ContextLength; length > 0 {
			threshold = length / 4 * 3
		}
		err := v.Fields(func(key string, v jsontext.Field) *apierror.Error {
			switch key {
			case "type":
			case "compact_threshold":
				return v.SetInteger(&threshold, 1, math.MaxInt32)
			default:
				return managementFields.Other(key, v, &f.ignored)
			}
			return nil
		})
		if f.api.Compactor == nil || f.api.Tools == nil { // nothing can be sealed, or a reply has one model call only
			f.ignored.Add("context_management")
			return err
		}
		f.compactAbove = threshold
		return err
	})
}

// prepared is a token request that a preparation has made.
type prepared struct {
	turn     *turn.Turn
	summary  bool // it asks for a summary, so that the conversation can be compacted before the reply
	required bool // without the summary the conversation is too long
}

// compacts reports whether the conversation is compacted first, if preparing it has
// come to t or err. There must be something that a summary can replace.
func (p *preparation) compacts(t *turn.Turn, err *apierror.Error) bool {
	switch {
	case p.compactAbove == 0, p.summary, p.rc.Unbounded:
		return false
	case err != nil:
		if err.Code != "context_length_exceeded" {
			return false
		}
	case len(t.Engine.Prompt) <= p.compactAbove:
		return false
	}
	return p.input.Before != nil || slices.ContainsFunc(p.input.Items, func(i turn.Item) bool {
		return i.Kind != turn.Instructions && i.Kind != turn.User && i.Kind != turn.Tools
	})
}

// prepareFirst makes the token request of the reply's first model call: the reply's own,
// or that for a summary.
func (p *preparation) prepareFirst(ctx context.Context) (*prepared, *apierror.Error) {
	t, err := p.prepare(ctx)
	if !p.compacts(t, err) {
		return &prepared{turn: t}, err
	}
	asks := *p
	askOnly(&asks.input)
	asks.input.Engine.MaxTokens = 0 // which is for the reply
	asks.input.Replies = turn.Replies{}
	asks.input.Engine.Logprobs, asks.input.Engine.TopLogprobs = false, 0
	if asks.input.Before != nil {
		whole, err := asks.input.Whole()
		if err != nil {
			return nil, err
		}
		asks.input.Before, asks.input.Items = nil, append(whole, asks.input.Items...)
	}
	asks.input.Items = append(slices.Clip(asks.input.Items), turn.Item{Kind: turn.User, Text: askForSummary})
	summary, failed := asks.prepareSummary(ctx)
	if failed != nil && err == nil {
		return &prepared{turn: t}, nil
	}
	return &prepared{turn: summary, summary: true, required: err != nil}, failed
}

// inlineCompaction is the compaction with which a reply begins.
type inlineCompaction struct {
	decoder  *decoder
	required bool // the conversation is too long without it
	item     *outputItem
}

// begin begins the first model call of a reply. Where that is for a summary, the item of
// the compaction begins.
func (p *prepared) begin(r *Reply, d *decoder) {
	if p.summary {
		c := &inlineCompaction{decoder: d, required: p.required, item: &outputItem{Output: item.Output{Kind: item.Compaction, ID: r.request.rc.NewID(item.Compaction.Names().Prefix)}}}
		r.request.compaction = &compaction{sealer: d.api.Compactor, room: userRoom(d.rc.Model), inline: c}
		r.output.place(c.item)
		r.events.itemAdded(c.item)
	}
	r.beginCall(p.turn)
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
	after := &afterCompaction{decoder: c.decoder}
	sealed, err := r.request.compaction.seal(r)
	switch {
	case err == nil:
		c.item.Sealed = sealed
		r.output.add(c.item, item.StatusCompleted)
		made := r.output.made[c.item.slot]
		r.events.itemDone(c.item, made.json)
		after.made = &store.Item{ID: made.id, JSON: made.json}
	case c.required || r.events.stream: // the client has seen the item begin
		return api.Step{}, err
	default:
		r.fault = errors.Join(r.fault, err)
		r.output.made, r.output.count = r.output.made[:c.item.slot], r.output.count-1
	}
	r.request.compaction = nil
	r.model.count()
	r.model.compacted = r.model.usage.total().output
	r.steps.prompted = len(r.output.made)
	job := stepJob{after, func(result any, err error) {
		if t, ok := result.(*turn.Turn); ok {
			r.beginCall(t)
			return
		}
		r.steps.err = ofInput(jobError(err))
	}}
	return r.runJobs([]stepJob{job}, (*Reply).callStep)
}

// afterCompaction is the job that prepares the model call behind a compaction.
type afterCompaction struct {
	decoder *decoder
	made    *store.Item // the compaction; nil: there is none
}

// Do implements api.Job. Its result is a *turn.Turn.
func (a *afterCompaction) Do(ctx context.Context) (any, error) {
	if a.made != nil {
		if err := a.decoder.items.addStored(*a.made, "input"); err != nil {
			return nil, err
		}
	}
	t, err := a.decoder.preparation().prepare(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// readCacheOptions reads how prompts are to be cached, which the engine decides by
// itself, and the response whose prompt this one is compared with. The response repeats
// the options.
func (f *fieldReader) readCacheOptions(v jsontext.Field) *apierror.Error {
	mode, ttl, compared := "implicit", "30m", ""
	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "mode":
			if v.Str != "implicit" && v.Str != "explicit" {
				return apierror.Invalid(v.Path, "The mode of prompt_cache_options must be implicit or explicit.")
			}
			mode = strings.Clone(v.Str)
		case "ttl":
			if v.Str != "30m" && v.Str != "12h" {
				return apierror.Invalid(v.Path, "The ttl of prompt_cache_options must be 30m or 12h.")
			}
			ttl = strings.Clone(v.Str)
		case "comparison_response_id":
			compared, err = v.ShortText()
			if f.rc.Prompts == nil {
				f.ignored.Add(v.Path)
			}
		default:
			err = cacheFields.Other(key, v, &f.ignored)
		}
		return err
	})
	dst := jsontext.AppendString([]byte(`,"prompt_cache_options":{"mode":`), mode)
	dst = jsontext.AppendString(append(dst, `,"ttl":`...), ttl)
	if compared != "" {
		dst = jsontext.AppendString(append(dst, `,"comparison_response_id":`...), compared)
	}
	dst = append(dst, '}')
	f.echo.cacheOptions, f.input.Replies.Compared = dst, strings.Clone(compared)
	f.options.compared = compared != "" && f.rc.Prompts != nil
	return err
}
