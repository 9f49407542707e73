package prompt

import (
	"cmp"
	"math"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

// afterCalls returns the items with each result after its call, before texts of the user
// or the developer that a client has put between the two. Semantic Kernel, for one, repeats
// the user's message before the outputs of tools. The model has been trained on results that
// follow their calls. Other calls and results between them stay as they are, unless the model would read
// a result as that of another call, and a summary is never passed. The items are not changed.
func afterCalls(items []item.Item) []item.Item {
	moved, places := misplaced(items)
	items = move(items, moved, places)
	moved, places = overtaken(items)
	return move(items, moved, places)
}

// move returns the items with those that are moved before the items of their places.
func move(items []item.Item, moved map[int]bool, places map[int][]int) []item.Item {
	if len(moved) == 0 {
		return items
	}

	ordered := make([]item.Item, 0, len(items))
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
func firstOpen(items []item.Item) int {
	// Those that are open, by id.
	calls := map[string]int{}
	// The others, with their results.
	var closed []closedCall

	// A summary replaces what is before it: no result of those calls moves before it.
	for i := range items {
		switch items[i].Kind {
		case item.Call:
			calls[items[i].CallID] = i
		case item.Result:
			if call, ok := calls[items[i].CallID]; ok {
				closed = append(closed, closedCall{call, i})
				delete(calls, items[i].CallID)
			}
		case item.User, item.Instructions:
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
func misplaced(items []item.Item) (moved map[int]bool, places map[int][]int) {
	// By the id of a call: the first text after it, -1: there is none.
	waiting := map[string]int{}
	// The calls after which no text has come.
	var recent []string

	// A result has a place once a text has come after its call. The first such text is it, of all
	// calls that have none yet.
	for i := range items {
		switch items[i].Kind {
		case item.Call:
			waiting[items[i].CallID] = -1
			recent = append(recent, items[i].CallID)
		case item.Result:
			place, known := waiting[items[i].CallID]
			if !known || place < 0 {
				continue
			}
			if moved == nil {
				moved, places = map[int]bool{}, map[int][]int{}
			}
			moved[i] = true
			places[place] = append(places[place], i)
		case item.User, item.Instructions:
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

// interleaved reports whether something else than results follows a result while calls wait for theirs.
// Hardly any conversation has that.
func interleaved(items []item.Item) bool {
	open, answered := 0, false
	for i := range items {
		switch items[i].Kind {
		case item.Result:
			open--
			answered = true
		case item.Tools:
		default:
			if answered && open > 0 {
				return true
			}
			answered = false
			if items[i].Kind == item.Call {
				open++
			}
		}
	}
	return false
}

// pairedCall is a call with its result.
type pairedCall struct {
	tool   string
	result int
	// Its result has come, or moves.
	over bool
}

// overtaken returns the results that come after further calls, though a result of a later call of the same
// tool has come before those: the model would read that one as theirs. Their places are after the results
// that it stands among, which [inCallOrder] orders.
func overtaken(items []item.Item) (moved map[int]bool, places map[int][]int) {
	if !interleaved(items) {
		return nil, nil
	}

	moved, places = map[int]bool{}, map[int][]int{}
	paired := pairedCalls(items)
	// By tool, in order: the calls whose results have not come yet.
	open := map[string][]*pairedCall{}
	end := 0
	for i := range items {
		for end = max(end, i); end < len(items) && (items[end].Kind == item.Result || items[end].Kind == item.Tools); {
			end++
		}
		call := paired[i]
		switch {
		case call == nil || call.over:
			continue
		case items[i].Kind == item.Call:
			open[call.tool] = append(open[call.tool], call)
			continue
		}

		// The results of the calls before this one's are here, or move here.
		for !call.over {
			earlier := open[call.tool][0]
			open[call.tool] = open[call.tool][1:]
			earlier.over = true
			if earlier.result > end {
				moved[earlier.result] = true
				places[end] = append(places[end], earlier.result)
			}
		}
	}
	return moved, places
}

// pairedCalls returns the calls that have a result, by their own index and by that of the result.
func pairedCalls(items []item.Item) map[int]*pairedCall {
	paired, waiting := map[int]*pairedCall{}, map[string]int{}
	for i := range items {
		switch it := &items[i]; it.Kind {
		case item.Call:
			waiting[it.CallID] = i
		case item.Result:
			if call, ok := waiting[it.CallID]; ok {
				delete(waiting, it.CallID)
				paired[i] = &pairedCall{tool: item.Recipient(items[call].Tool()), result: i}
				paired[call] = paired[i]
			}
		case item.User, item.Instructions:
			// No result passes a summary.
			if it.Summary {
				clear(waiting)
			}
		}
	}
	return paired
}

// placedResult is a result of a call before it.
type placedResult struct {
	// The recipient of its call, and the call's index.
	tool string
	call int
	// Its own index among the results.
	at int
}

// inCallOrder returns the results that items begin with, and the tools that have joined between
// them: the results of one tool in the order of its calls. In the format a result has no id, so
// that the model reads the first result of a tool as that of the tool's first call. Results of no call
// stay where they are, and so does the order of different tools: engines have these prompts in their
// caches. The items are not changed.
func inCallOrder(items []item.Item, callees map[string]item.Callee) []item.Item {
	ordered, last, end := true, math.MinInt, 0
	for ; end < len(items) && (items[end].Kind == item.Result || items[end].Kind == item.Tools); end++ {
		if by, known := callees[items[end].CallID]; known && items[end].Kind == item.Result {
			ordered, last = ordered && last < by.At, by.At
		}
	}
	results := items[:end]
	if ordered {
		return results
	}

	// The results of most steps are on the stack.
	var onStack [2][8]placedResult
	places := onStack[0][:0]
	for i := range results {
		if by, known := callees[results[i].CallID]; known && results[i].Kind == item.Result {
			places = append(places, placedResult{by.Recipient, by.At, i})
		}
	}
	moved := append(onStack[1][:0], places...)
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
