package prompt

import (
	"context"
	"math/bits"
	"slices"
	"sort"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// roomForPrompt returns how many tokens a truncated conversation may have. The rest of the
// context is for the reply: max_tokens of the request, or else an eighth of the
// context.
func roomForPrompt(rc *request.Context, in *request.Input) int {
	length := rc.ContextLength()
	reply := in.Engine.MaxTokens
	if reply <= 0 || reply >= length {
		reply = length / 8
	}
	return length - reply
}

// truncatedPrompt renders the conversation without its oldest turns. It drops as few
// turns as possible, and never the last one or instructions. items are those
// after the request's prefix, with what is kept of them; the items of the prefix
// are read.
func truncatedPrompt(
	ctx context.Context, rc *request.Context, in *request.Input, head *head, items []item.Item,
) ([]harmony.Token, *apierror.Error) {
	if prefixOf(in) != nil {
		all, err := in.Whole()
		if err != nil {
			return nil, err
		}
		items = (*Prefix)(nil).followed(append(all, in.Items...))
		if in.Continue {
			items = items[:len(items)-1]
		}

		read, cancel := context.WithTimeout(ctx, kept.ReadTimeout)
		defer cancel()
		// A fault has been noted by Prepare.
		stored, _ := kept.Read(read, rc, nil, items)
		defer stored.GiveRoomBack(rc)
		items = stored.Items
	}

	whole := rendering{rc, rc.RenderLimit()}
	starts := turnStarts(items)
	if len(starts) == 0 {
		return whole.prompt(ctx, head, &Prefix{}, items)
	}
	// Each try has the tools of the conversation join again.
	if err := toolset.SpendJoins(rc, joinedIn(nil, items), bits.Len(uint(len(starts)))); err != nil {
		return nil, err
	}

	tried := rendering{rc, roomForPrompt(rc, in)}
	from := sort.Search(len(starts)-1, func(i int) bool {
		prompt, err := tried.prompt(ctx, head, &Prefix{}, without(items, starts[i]))
		return err != nil && !tooLong(err) || err == nil && len(prompt) <= tried.limit
	})
	return whole.prompt(ctx, head, &Prefix{}, without(items, starts[from]))
}

// turnStarts returns the indexes at which the turns of a conversation begin, except
// the first: at a user's text before which every call has its output. Texts in a
// row begin one turn. A summary always begins one: what precedes it can be
// dropped.
func turnStarts(items []item.Item) []int {
	var starts []int
	// The items before the first user's text are instructions, which are never dropped.
	first, open := true, 0
	for i := range items {
		switch items[i].Kind {
		case item.Call:
			open++
		case item.Result:
			open--
		case item.User:
			if !first && open == 0 && (items[i].Summary || items[i-1].Kind != item.User) {
				starts = append(starts, i)
			}
			first = false
		}
	}
	return starts
}

// without returns the conversation from the item at start on, and the instructions
// and tools before it.
func without(items []item.Item, start int) []item.Item {
	dropped := func(i item.Item) bool { return i.Kind != item.Instructions && i.Kind != item.Tools }
	head := slices.DeleteFunc(slices.Clone(items[:start]), dropped)
	return append(head, items[start:]...)
}
