package read

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// firstCall is all that the first model call's token request is made of.
type firstCall struct {
	rc    *turn.RequestContext
	input turn.Input

	// summary says that the model is asked for a summary of the conversation.
	summary bool
	// compactAbove are the tokens of a prompt above which the conversation is compacted
	// first; 0: never. compactor seals that compaction.
	compactAbove int
	compactor    *seal.Sealer
}

// prepare makes the token request. It reads what the store has of the turn.
func (p *firstCall) prepare(ctx context.Context) (*turn.Turn, *apierror.Error) {
	if !p.summary {
		return p.rc.Prepare(ctx, &p.input)
	}
	return p.prepareSummary(ctx)
}

// The longest texts of a conversation that is too long to be summarised as it
// is: of so many bytes, then of fewer, until there is room for the summary.
const (
	longestText  = 32 << 10
	shortestText = 1 << 9
)

// prepareSummary makes the token request for a summary. A conversation that is too
// long for the model's context is exactly what has to be compacted: long texts are
// shortened then, and only if that is not enough, turns are dropped.
func (p *firstCall) prepareSummary(ctx context.Context) (*turn.Turn, *apierror.Error) {
	in := p.input
	in.Truncate, in.Engine.MaxTokens = false, 0
	t, err := p.rc.Prepare(ctx, &in)
	// Shorter texts keep every turn in the summary; dropping turns loses whole thoughts.
	for size := longestText; size >= shortestText && p.cramped(t, err); size /= 4 {
		in.Items = shortened(p.input.Items, size)
		t, err = p.rc.Prepare(ctx, &in)
	}

	if p.cramped(t, err) {
		in.Truncate = true
		t, err = p.rc.Prepare(ctx, &in)
	}

	// max_output_tokens is the client's bound also for a summary, but does not decide what is left out.
	if most := p.input.Engine.MaxTokens; err == nil && most > 0 {
		t.Engine.MaxTokens = min(t.Engine.MaxTokens, most)
	}

	return t, err
}

// cramped reports whether the prompt leaves less than an eighth of the context.
func (p *firstCall) cramped(t *turn.Turn, err *apierror.Error) bool {
	if err != nil || p.rc.Unbounded {
		return err != nil && err.Code == "context_length_exceeded"
	}
	left := t.Engine.MaxTokens
	return left < (len(t.Engine.Prompt)+left)/8
}

// shortened is the conversation without the middle of texts that are longer
// than size bytes. Instructions, and the demand at its end, stay as they are.
func shortened(items []turn.Item, size int) []turn.Item {
	short := slices.Clone(items)
	for i := range short[:len(short)-1] {
		if it := &short[i]; it.Kind != turn.Instructions {
			it.Text = shorten(it.Text, size)
		}
	}
	return short
}

// shorten leaves out the middle of a text that is longer than size bytes.
func shorten(text string, size int) string {
	if len(text) <= size {
		return text
	}

	begin, end := size/2, len(text)-size/2
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}

	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}

	return text[:begin] + fmt.Sprintf("\n[%d bytes are left out here]\n", end-begin) + text[end:]
}

// Do implements api.Job. Its result is a *prepared.
func (p *firstCall) Do(ctx context.Context) (any, error) {
	t, err := p.prepareFirst(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// compacts reports whether the conversation is compacted first, if preparing it has
// come to t or err. There must be something that a summary can replace.
func (p *firstCall) compacts(t *turn.Turn, err *apierror.Error) bool {
	switch {
	// A prompt that is only counted or shown stays as the client sent it.
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
func (p *firstCall) prepareFirst(ctx context.Context) (*request.Prepared, *apierror.Error) {
	t, err := p.prepare(ctx)
	if !p.compacts(t, err) {
		return &request.Prepared{Turn: t}, err
	}

	// The reply's own input stays as it is: it is prepared again after the compaction.
	asks := *p
	compaction.AskOnly(&asks.input)
	// The limit is for the reply, not for the summary.
	asks.input.Engine.MaxTokens = 0
	asks.input.Replies = turn.Replies{}
	if asks.input.Before != nil {
		whole, err := asks.input.Whole()
		if err != nil {
			return nil, err
		}
		asks.input.Before, asks.input.Items = nil, append(whole, asks.input.Items...)
	}

	asks.input.Items = append(slices.Clip(asks.input.Items), turn.Item{Kind: turn.User, Text: compaction.Ask(compaction.KeptMessages)})
	// If the prompt of the reply fits, the reply does without a summary that cannot be asked for.
	summary, failed := asks.prepareSummary(ctx)
	if failed != nil && err == nil {
		return &request.Prepared{Turn: t}, nil
	}

	return &request.Prepared{
		Turn:       summary,
		Compaction: &request.Compaction{Sealer: p.compactor, Room: userRoom(p.rc.Model)},
		Required:   err != nil,
	}, failed
}

// afterCompaction is the job that prepares the model call after a compaction.
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
	t, err := a.decoder.firstCall().prepare(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}
