package turn

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

// firstOpen returns the index of the first call whose result has not come; the number of
// items if there is none. The result may move before texts that follow the call.
func firstOpen(items []Item) int {
	// Those that are open, by id.
	calls := map[string]int{}

	// A summary replaces what is before it: no result of those calls moves before it.
	for i := range items {
		switch items[i].Kind {
		case Call:
			calls[items[i].CallID] = i
		case Result:
			delete(calls, items[i].CallID)
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
	return first
}

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
