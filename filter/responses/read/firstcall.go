package read

import (
	"context"
	"slices"

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
	// unread says that nobody gets the output.
	unread bool
	// compactAbove are the tokens of a prompt above which the conversation is compacted
	// first; 0: never. compactor seals that compaction.
	compactAbove int
	compactor    *seal.Sealer
}

// prepare makes the token request. It reads what the store has of the turn.
func (p *firstCall) prepare(ctx context.Context) (*turn.Turn, *apierror.Error) {
	if p.summary {
		return compaction.Prepare(ctx, p.rc, &p.input)
	}

	t, err := turn.Prepare(ctx, p.rc, &p.input)
	if err == nil && p.unread {
		t.LeaveUnread()
	}
	return t, err
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

	asks.input.Items = append(slices.Clip(asks.input.Items), turn.Item{
		Kind: turn.User, Text: compaction.Ask(compaction.KeptMessages),
	})
	// If the prompt of the reply fits, the reply does without a summary that cannot be asked for.
	summary, failed := compaction.Prepare(ctx, asks.rc, &asks.input)
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
