package turn

import (
	"slices"
	"sort"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// room is how many tokens a truncated conversation may have, so that there is
// room for the reply: what it asks for, or else an eighth of the context.
func (s *Scope) room(in *Input) int {
	context := s.contextLength()
	reply := in.Engine.MaxTokens
	if reply <= 0 || reply >= context {
		reply = context / 8
	}
	return context - reply
}

// truncated renders the conversation without its oldest turns: as few as can
// be dropped for the rest to fit, and never the last one. Instructions stay.
func (s *Scope) truncated(in *Input, items []Item, tools *toolset) ([]harmony.Token, *apierror.Error) {
	starts := turnStarts(items)
	if len(starts) == 0 {
		return s.render(s.messages(in, items, tools))
	}
	from := func(i int) ([]harmony.Token, *apierror.Error) {
		return s.render(s.messages(in, without(items, starts[i]), tools))
	}
	return from(sort.Search(len(starts)-1, func(i int) bool {
		prompt, err := from(i)
		return err != nil || len(prompt) <= s.room(in)
	}))
}

// turnStarts is where the turns of a conversation begin, but for the first: at
// a user's text before which every call has its output.
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
			if !first && open == 0 && items[i-1].Kind != User {
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
