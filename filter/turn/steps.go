package turn

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// textReader returns the texts that are kept under these names, by name. It may
// return texts of other names too.
type textReader func(names []string) (map[string]string, error)

// keptItems are items with what is kept of them.
type keptItems struct {
	items []Item
	// The choices for which something is kept.
	choices []keptChoice
	// Where in the original items a step begins whose further calls may come with later items; -1:
	// there is none. How many of items and of choices precede it.
	open          int
	before        int
	choicesBefore int
	// Bytes of memory that are taken for what was made of the texts, until they are rendered.
	room int
}

// withKept returns the items with what is kept of their steps after the last answer: as the
// model wrote them where they mean the same, else with the reasoning that led to calls where
// they have none. It ignores steps before the last answer: the model does not see their reasoning
// any more, and a prompt must not change when the store drops what it has of them. On an error it
// returns the items alone.
func (rc *RequestContext) withKept(ctx context.Context, items []Item) (keptItems, error) {
	if rc.Memory == nil {
		return keptItems{items: items, open: -1}, nil
	}

	room := 0
	kept, err := rc.insertKept(items, func(names []string) (map[string]string, error) {
		texts, err := rc.Memory.Texts(ctx, rc.Tenant, names)
		if err != nil {
			return nil, err //nolint:wrapcheck // insertKept says what was read
		}
		return rc.affordable(texts, &room), nil
	})
	kept.room = room
	return kept, err
}

// writtenFactor is how many bytes what is made of a kept choice has for each byte of its text: the
// tokens, and what they say.
const writtenFactor = 3

// affordable returns the texts, and without what the model wrote if the request has not the memory or
// not the work for reading that. What is taken of the memory is added to room.
func (rc *RequestContext) affordable(texts map[string]string, room *int) map[string]string {
	size := 0
	for name, text := range texts {
		if isWrittenKey(name) {
			size += len(text)
		}
	}

	if size == 0 {
		return texts
	}
	steps := size / comparedBytes
	if rc.Work.Affords(steps) && rc.Room(writtenFactor*size) == nil {
		*room += writtenFactor * size
		// A context that has ended is noticed by what follows.
		_ = rc.Work.Spend(steps)
		return texts
	}

	// The store's own map must not be changed.
	rest := make(map[string]string, len(texts))
	for name, text := range texts {
		if !isWrittenKey(name) {
			rest[name] = text
		}
	}
	return rest
}

// rendered gives the memory of items back that have been rendered.
func (rc *RequestContext) rendered(kept *keptItems) {
	if kept.room > 0 {
		_ = rc.Room(-kept.room)
		kept.room = 0
	}
}

// insertKept is withKept for any reader.
func (rc *RequestContext) insertKept(items []Item, read textReader) (keptItems, error) {
	exact := rc.Model.History == HistoryExact
	steps := stepsWithCalls(items)
	if !exact {
		steps = slices.DeleteFunc(steps, func(s step) bool { return s.reasoned })
	}
	steps = steps[firstKept(len(steps), exact):]

	kept := keptItems{items: items, open: -1}
	if len(steps) == 0 {
		return kept, nil
	}
	found, err := readSteps(read, steps, exact)
	if err != nil {
		return kept, fmt.Errorf("read the reasoning of tool calls: %w", err)
	}

	kept.items = make([]Item, 0, len(items)+len(steps))
	from := 0
	for i := range steps {
		// The calls of one choice can have results between them, which look like steps of their own.
		step := &steps[i]
		if step.begin < from {
			continue
		}
		kept.items = append(kept.items, items[from:step.begin]...)
		from = step.begin

		choicesBefore := len(found.kept)
		if choice := found.choice(step); choice != nil {
			same, end, open := rc.asWritten(items, step.begin, choice)
			if open && kept.open < 0 {
				kept.open, kept.before, kept.choicesBefore = step.begin, len(kept.items), choicesBefore
			}
			if same != nil {
				kept.items = append(kept.items, same...)
				from = end
				continue
			}
		}

		if text, ok := found.reasoning(step); ok && !step.reasoned {
			kept.items = append(kept.items, Item{Kind: Reasoning, Text: text})
		}
	}
	kept.items = append(kept.items, items[from:]...)
	kept.choices = found.kept
	return kept, nil
}

// step is a step of the assistant with tool calls.
type step struct {
	// Index of its first item.
	begin int
	// Id of its first call.
	call string
	// The items have reasoning before its first call.
	reasoned bool
	// It follows the result of a hosted call, so it may belong to a turn whose reasoning precedes
	// that call.
	hosted bool
}

// maxKeptSteps bounds the steps for which the store is read: the last ones.
const maxKeptSteps = 1024

// stepsWithCalls returns the steps after the last answer that have calls.
func stepsWithCalls(items []Item) []step {
	var steps []step
	// Of the current step; called: one of its calls is listed.
	var now step
	called := false

	for i := range items {
		switch items[i].Kind {
		case Reasoning:
			now.reasoned = true
		case Call:
			if !called {
				now.call = items[i].CallID
				steps = append(steps, now)
			}
			called = true
		case Preamble:
		// Found by a call of the same turn, or of the one before.
		case Tools:
			now, called = step{begin: i + 1, hosted: now.hosted}, false
		default:
			now, called = step{begin: i + 1, hosted: items[i].Hosted}, false
			if items[i].Kind == Answer && items[i].Text != "" {
				steps = steps[:0]
			}
		}
	}
	return steps
}

// firstKept returns the first of so many steps for which the store is read. Of an exact history many
// are left out together, because each time the prompt has another beginning.
func firstKept(steps int, exact bool) int {
	first := max(0, steps-maxKeptSteps)
	if exact {
		const together = maxKeptSteps / 2
		first = (first + together - 1) / together * together
	}
	return first
}

// foundTexts are the texts that are kept for steps.
type foundTexts struct {
	texts map[string]string
	// By the id of a call that is not the first one of its choice: the first one's.
	firsts map[string]string
	// The choices that have been read of the texts, by the id of their first call; nil: the text is none.
	choices map[string]*writtenChoice
	// Of these, when each was kept.
	kept []keptChoice
}

// readSteps reads what is kept for the steps. It reads once, and a second time if a client has
// left out the first call of a turn, or has put another one before it.
func readSteps(read textReader, steps []step, exact bool) (*foundTexts, error) {
	names := make([]string, 0, 3*len(steps))
	for i := range steps {
		names = appendNames(names, &steps[i], steps[i].call, exact)
		names = append(names, firstCallKey(steps[i].call))
	}
	texts, err := read(names)
	if err != nil {
		return nil, err
	}

	found := &foundTexts{texts: texts, firsts: map[string]string{}, choices: map[string]*writtenChoice{}}
	names = names[:0]
	for i := range steps {
		step := &steps[i]
		if found.has(step.call) || !exact && step.hosted {
			continue
		}
		if first, ok := texts[firstCallKey(step.call)]; ok {
			found.firsts[step.call] = first
			names = appendNames(names, step, first, exact)
		}
	}

	if len(names) == 0 {
		return found, nil
	}
	others, err := read(names)
	if err != nil {
		return nil, err
	}

	// The reader's own map must not be changed: the job that keeps a choice may be writing it.
	found.texts = maps.Clone(texts)
	maps.Copy(found.texts, others)
	return found, nil
}

// appendNames appends the names of what is kept under the id of a choice's first call.
func appendNames(names []string, s *step, first string, exact bool) []string {
	if !s.reasoned {
		names = append(names, reasoningKey(first))
	}
	if exact {
		names = append(names, writtenKey(first))
	}
	return names
}

// has reports whether something is kept under the id of a call.
func (f *foundTexts) has(call string) bool {
	_, reasoned := f.texts[reasoningKey(call)]
	_, written := f.texts[writtenKey(call)]
	return reasoned || written
}

// choice returns what the model wrote where it made the step's first call; nil if nothing is kept.
// A text is read once: a request can name one id many times.
func (f *foundTexts) choice(s *step) *writtenChoice {
	first := s.call
	if other, ok := f.firsts[s.call]; ok {
		first = other
	}
	text, ok := f.texts[writtenKey(first)]
	if !ok {
		return nil
	}
	if choice, read := f.choices[first]; read {
		return choice
	}

	choice, at, ok := readWrittenChoice(first, text)
	f.choices[first] = choice
	if ok {
		f.kept = append(f.kept, keptChoice{choice.calls, at})
	}
	return choice
}

// reasoning returns the reasoning that is kept for the step. That of a choice is found by each of
// its calls, except after the result of a hosted call: there it precedes that call.
func (f *foundTexts) reasoning(s *step) (string, bool) {
	if text, ok := f.texts[reasoningKey(s.call)]; ok {
		return text, true
	}
	first, ok := f.firsts[s.call]
	if !ok || s.hosted {
		return "", false
	}
	text, ok := f.texts[reasoningKey(first)]
	return text, ok
}
