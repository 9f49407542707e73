package responses

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preparation is all that the first model call's token request is made of.
type preparation struct {
	rc      *turn.RequestContext
	input   turn.Input
	summary bool // the model is asked for a summary of the conversation

	compactAbove int // the tokens of a prompt above which the conversation is compacted first; 0: never
}

// prepare makes the token request. It reads what the store has of the turn.
func (p *preparation) prepare(ctx context.Context) (*turn.Turn, *apierror.Error) {
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
func (p *preparation) prepareSummary(ctx context.Context) (*turn.Turn, *apierror.Error) {
	in := p.input
	in.Truncate, in.Engine.MaxTokens = false, 0
	t, err := p.rc.Prepare(ctx, &in)
	for size := longestText; size >= shortestText && p.cramped(t, err); size /= 4 {
		in.Items = shortened(p.input.Items, size)
		t, err = p.rc.Prepare(ctx, &in)
	}
	if p.cramped(t, err) {
		in.Truncate = true
		t, err = p.rc.Prepare(ctx, &in)
	}
	if most := p.input.Engine.MaxTokens; err == nil && most > 0 {
		t.Engine.MaxTokens = min(t.Engine.MaxTokens, most)
	}
	return t, err
}

// cramped reports whether the prompt leaves less than an eighth of the context.
func (p *preparation) cramped(t *turn.Turn, err *apierror.Error) bool {
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
func (p *preparation) Do(ctx context.Context) (any, error) {
	t, err := p.prepareFirst(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}
