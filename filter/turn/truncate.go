package turn

import (
	"context"
	"slices"
	"sort"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// room is how many tokens a truncated conversation may have, so that there is
// room for the reply: what it asks for, or else an eighth of the context.
func (s *Scope) room(in *Input) int {
	length := s.contextLength()
	reply := in.Engine.MaxTokens
	if reply <= 0 || reply >= length {
		reply = length / 8
	}
	return length - reply
}

// truncated renders the conversation without its oldest turns: as few as can
// be dropped for the rest to fit, and never the last one. Instructions stay.
// Items that the request's prefix stands for are read after all; items are the
// others, with the reasoning that is kept for them.
func (s *Scope) truncated(ctx context.Context, in *Input, h *head, items []Item) ([]harmony.Token, *apierror.Error) {
	if in.Before != nil {
		all, err := in.Whole()
		if err != nil {
			return nil, err
		}
		items = (*Prefix)(nil).followed(append(all, in.Items...))
		if in.Continue {
			items = items[:len(items)-1]
		}
		read, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		items, _ = s.withKeptReasoning(read, items) // has been read just now, or could not be
	}
	whole := rendering{ctx, s, s.promptLimit()}
	starts := turnStarts(items)
	if len(starts) == 0 {
		return whole.prompt(h, &Prefix{}, items)
	}
	tried := rendering{ctx, s, s.room(in)}
	from := sort.Search(len(starts)-1, func(i int) bool {
		prompt, err := tried.prompt(h, &Prefix{}, without(items, starts[i]))
		return err != nil && !tooLong(err) || err == nil && len(prompt) <= tried.limit
	})
	return whole.prompt(h, &Prefix{}, without(items, starts[from]))
}

// turnStarts is where the turns of a conversation begin, but for the first: at
// a user's text before which every call has its output. Texts that follow each
// other begin one turn, but a summary always begins one: what stands before it
// can be dropped.
func turnStarts(items []Item) []int {
	var starts []int
	first, open := true, 0
	for i := range items {
		switch items[i].Kind {
		case Call:
			open++
		case Result:
			open--
		case User:
			if !first && open == 0 && (items[i].Summary || items[i-1].Kind != User) {
				starts = append(starts, i)
			}
			first = false
		}
	}
	return starts
}

// without is the conversation from the item at start on, and all instructions.
func without(items []Item, start int) []Item {
	kept := slices.DeleteFunc(slices.Clone(items[:start]), func(i Item) bool { return i.Kind != Instructions })
	return append(kept, items[start:]...)
}
