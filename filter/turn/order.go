package turn

import (
	"cmp"
	"slices"
)

// afterCalls returns the items with each result after its call, before texts of the user
// or the developer that a client has put between the two. Semantic Kernel, for one, repeats
// the user's message before the outputs of tools. The model has been trained on results that
// follow their calls. Calls and results between them stay as they are, and a summary is never
// passed. The items are not changed.
func afterCalls(items []Item) []Item {
	moved, places := misplaced(items)
	if len(moved) == 0 {
		return items
	}

	ordered := make([]Item, 0, len(items))
	for i := range items {
		for _, result := range places[i] {
			ordered = append(ordered, items[result])
		}
		if !moved[i] {
			ordered = append(ordered, items[i])
		}
	}
	return ordered
}

// firstOpen returns the index of the first call whose result has not come, or follows such a call;
// the number of items if there is none. The result may move before texts that follow the call, and
// before other results.
func firstOpen(items []Item) int {
	// Those that are open, by id.
	calls := map[string]int{}
	// The others, with their results.
	var closed []closedCall

	// A summary replaces what is before it: no result of those calls moves before it.
	for i := range items {
		switch items[i].Kind {
		case Call:
			calls[items[i].CallID] = i
		case Result:
			if call, ok := calls[items[i].CallID]; ok {
				closed = append(closed, closedCall{call, i})
				delete(calls, items[i].CallID)
			}
		case User, Instructions:
			if items[i].Summary {
				clear(calls)
			}
		}
	}

	first := len(items)
	for _, i := range calls {
		first = min(first, i)
	}
	// From the last result back: each call that is found may be before results of others.
	for i := len(closed) - 1; i >= 0 && closed[i].result > first; i-- {
		first = min(first, closed[i].call)
	}
	return first
}

// closedCall is where a call and its result are.
type closedCall struct{ call, result int }

// misplaced returns the results that do not follow their calls, and before which items they
// belong: the first text after the call.
func misplaced(items []Item) (moved map[int]bool, places map[int][]int) {
	// By the id of a call: the first text after it, -1: there is none.
	waiting := map[string]int{}
	// The calls after which no text has come.
	var recent []string

	// A result has a place once a text has come after its call. The first such text is it, of all
	// calls that have none yet.
	for i := range items {
		switch items[i].Kind {
		case Call:
			waiting[items[i].CallID] = -1
			recent = append(recent, items[i].CallID)
		case Result:
			place, known := waiting[items[i].CallID]
			if !known || place < 0 {
				continue
			}
			if moved == nil {
				moved, places = map[int]bool{}, map[int][]int{}
			}
			moved[i] = true
			places[place] = append(places[place], i)
		case User, Instructions:
			if items[i].Summary {
				clear(waiting)
				recent = nil
				continue
			}
			for _, id := range recent {
				if waiting[id] < 0 {
					waiting[id] = i
				}
			}
			recent = nil
		}
	}
	return moved, places
}

// inStep reports whether a step of the model goes on with an item: one that it has generated, or what
// a server has added to its calls.
func (i *Item) inStep() bool {
	return i.Kind.OfModel() || i.Kind == Tools || i.Kind == Result && i.Hosted
}

// placedResult is a result of the step that it follows.
type placedResult struct {
	// The recipient of its call, and the call's index.
	tool string
	call int
	// Its own index among the results.
	at int
}

// inCallOrder returns the results that items begin with, and the tools that have joined between
// them: the results of one tool in the order of its calls. In the format a result has no id, so
// that the model reads the first result of a tool as that of the tool's first call. The calls are
// those of the step before the results, which begins at step. Results of other calls stay where they
// are, and so does the order of different tools: engines have these prompts in their caches.
// The items are not changed.
func inCallOrder(items []Item, step int, callees map[string]callee) []Item {
	ordered, last, end := true, -1, 0
	for ; end < len(items) && (items[end].Kind == Result || items[end].Kind == Tools); end++ {
		if by := callees[items[end].CallID]; items[end].Kind == Result && by.at >= step {
			ordered, last = ordered && last < by.at, by.at
		}
	}
	results := items[:end]
	if ordered {
		return results
	}

	// The results of most steps have room on the stack.
	var room [2][8]placedResult
	places := room[0][:0]
	for i := range results {
		if by := callees[results[i].CallID]; results[i].Kind == Result && by.at >= step {
			places = append(places, placedResult{by.recipient, by.at, i})
		}
	}
	moved := append(room[1][:0], places...)
	slices.SortFunc(places, func(a, b placedResult) int {
		return cmp.Or(cmp.Compare(a.tool, b.tool), a.at-b.at)
	})
	slices.SortFunc(moved, func(a, b placedResult) int {
		return cmp.Or(cmp.Compare(a.tool, b.tool), a.call-b.call, a.at-b.at)
	})
	if slices.Equal(places, moved) {
		return results
	}

	inOrder := slices.Clone(results)
	for i := range places {
		inOrder[places[i].at] = results[moved[i].at]
	}
	return inOrder
}
