package kept

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// textReader returns the texts that are kept under these names, by name. It may
// return texts of other names too.
type textReader func(names []string) (map[string]string, error)

// Items are items with what is kept of them.
type Items struct {
	Items []item.Item
	// What of them an answer turns into what the client has sent.
	passing []passingStep
	// The choices for which something is kept.
	Choices []Choice
	// The first calls of the choices whose reasoning is among the items, or is the client's own.
	Reasoned map[string]bool
	// Where in the original items a step begins whose further calls may come with later items; nil:
	// there is none.
	open *openStep
	// Bytes of memory that are taken for what was made of the texts, until they are rendered.
	room int
}

// openStep is where a step begins in the original items, and how much precedes it of what is kept.
type openStep struct {
	begin, items, choices int
	// The first call of its choice; "": its reasoning precedes the step.
	first string
}

// passingStep is a step that is as the model wrote it until an answer follows: where its items are, and
// those that the client has sent.
type passingStep struct {
	begin, end int
	sent       []item.Item
}

// Answered returns the items as they are once an answer follows them, except for reasoning.
func (k *Items) Answered() []item.Item {
	if len(k.passing) == 0 {
		return k.Items
	}

	items := make([]item.Item, 0, len(k.Items))
	from := 0
	for _, step := range k.passing {
		items = append(append(items, k.Items[from:step.begin]...), step.sent...)
		from = step.end
	}
	return append(items, k.Items[from:]...)
}

// CutOpen leaves the step out whose further calls may come with later items, and what follows it. It
// returns where that begins in the original items, of which there are so many.
func (k *Items) CutOpen(end int) int {
	if k.open == nil {
		return end
	}

	k.Items, k.Choices = k.Items[:k.open.items], k.Choices[:k.open.choices]
	delete(k.Reasoned, k.open.first)
	k.passing = slices.DeleteFunc(k.passing, func(s passingStep) bool { return s.begin >= len(k.Items) })
	return k.open.begin
}

// Clear leaves all items out.
func (k *Items) Clear() { *k = Items{room: k.room} }

// Read returns the items after before with what is kept of their steps. After the last answer steps
// are as the model wrote them where they mean the same, else with the reasoning that led to calls where
// they have none. Of the steps before it those are as the model wrote them that begin with something
// else than reasoning: the engine has them up to there. Of others nothing is read: the model does not see
// their reasoning any more, and a prompt must not change when the store drops what it has of them. reasoned
// are the first calls of the choices whose reasoning precedes the items. On an error it returns the items
// alone.
func Read(
	ctx context.Context, rc *request.Context, reasoned map[string]bool, items []item.Item,
) (Items, error) {
	if rc.Memory == nil {
		return Items{Items: items}, nil
	}

	room := 0
	kept, err := insertKept(rc, reasoned, items, func(names []string) (map[string]string, error) {
		texts, err := rc.Memory.Texts(ctx, rc.Tenant, names)
		if err != nil {
			return nil, err //nolint:wrapcheck // insertKept says what was read
		}
		return affordable(rc, texts, &room), nil
	})
	kept.room = room
	return kept, err
}

// writtenFactor is how many bytes what is made of a kept choice has for each byte of its text: the
// tokens, and what they say.
const writtenFactor = 3

// affordable returns the texts, and without what the model wrote if the request has not the memory or
// not the work for reading that. What is taken of the memory is added to room.
func affordable(rc *request.Context, texts map[string]string, room *int) map[string]string {
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

// GiveRoomBack gives the memory of the items back, which have been rendered.
func (k *Items) GiveRoomBack(rc *request.Context) {
	if k.room > 0 {
		_ = rc.Room(-k.room)
		k.room = 0
	}
}

// insertKept is [Read] for any reader.
func insertKept(
	rc *request.Context, reasoned map[string]bool, items []item.Item, read textReader,
) (Items, error) {
	exact := rc.Model.History == request.HistoryExact
	steps := stepsWithCalls(items, exact)
	steps = steps[firstKept(len(steps), exact):]

	kept := Items{Items: items}
	if len(steps) == 0 {
		return kept, nil
	}
	found, err := readSteps(read, steps, exact)
	if err != nil {
		return kept, fmt.Errorf("read the reasoning of tool calls: %w", err)
	}
	if len(found.texts) == 0 {
		return kept, nil
	}

	if item.AnyAnswer(items) {
		reasoned = nil
	}
	kept.Items = make([]item.Item, 0, len(items)+len(steps))
	kept.Reasoned = map[string]bool{}
	from := 0
	for i := range steps {
		// The calls of one choice can have results between them, which look like steps of their own.
		step := &steps[i]
		if step.begin < from {
			continue
		}
		kept.Items = append(kept.Items, items[from:step.begin]...)

		if end := insertChoice(rc, &kept, items, step, found); end > step.begin {
			from = end
			continue
		}
		from = step.begin
		if !reasoned[found.first(step)] {
			from = kept.insertReasoning(items, step, found)
		}
	}
	kept.Items = append(kept.Items, items[from:]...)
	kept.Choices = found.kept
	return kept, nil
}

// insertChoice adds the step as the model wrote it, and returns where it ends in the original items; 0: it
// is not, or not what the model wrote.
func insertChoice(rc *request.Context, kept *Items, items []item.Item, s *step, found *foundTexts) (end int) {
	place := openStep{begin: s.begin, items: len(kept.Items), choices: len(found.kept)}
	if first := found.first(s); !kept.Reasoned[first] {
		place.first = first
	}
	choice := found.choice(s)
	if choice == nil {
		return 0
	}

	same, end, open := asWritten(rc, items, s.begin, choice)
	if open && kept.open == nil {
		kept.open = &place
	}
	if same == nil {
		return 0
	}

	kept.Items = append(kept.Items, same...)
	if !choice.lasts() {
		kept.passing = append(kept.passing, passingStep{place.items, len(kept.Items), items[s.begin:end]})
	}
	if !s.answered {
		kept.Reasoned[found.first(s)] = true
	}
	return end
}

// insertReasoning adds the reasoning that led to the step where the client has sent none, or the rest of
// it, and returns where the original items go on.
func (k *Items) insertReasoning(items []item.Item, s *step, found *foundTexts) (from int) {
	// The calls of one choice can be several steps here. Its reasoning led to the first of them.
	first := found.first(s)
	text, ok := found.reasoning(s)
	if !ok || k.Reasoned[first] {
		return s.begin
	}
	k.Reasoned[first] = true

	sent := items[s.begin:s.end]
	switch {
	case !s.reasoned:
		k.Items = append(k.Items, item.Item{Kind: item.Reasoning, Text: text})
		return s.begin
	case isRest(joinTexts(reasoningOf(sent), asIs), text):
		k.Items = append(k.Items, item.Item{Kind: item.Reasoning, Text: text})
		for i := range sent {
			if sent[i].Kind != item.Reasoning {
				k.Items = append(k.Items, sent[i])
			}
		}
		return s.end
	}
	return s.begin
}

// reasoningOf returns the texts of reasoning among items.
func reasoningOf(items []item.Item) []string {
	var texts []string
	for i := range items {
		if items[i].Kind == item.Reasoning {
			texts = append(texts, items[i].Text)
		}
	}
	return texts
}

// isRest reports whether reasoning that was sent is the end of what is kept, and not all of it. Of a
// stream openai-node gives an application the last piece alone, because it does not know the field.
func isRest(sent, kept string) bool {
	sent, kept = strings.TrimSpace(sent), strings.TrimSpace(kept)
	return sent != "" && len(sent) < len(kept) && strings.HasSuffix(kept, sent)
}

// step is a step of the assistant with tool calls.
type step struct {
	// Indexes of its first item, and of its first call.
	begin, end int
	// Id of that call.
	call string
	// The items have reasoning before its first call.
	reasoned bool
	// An answer follows.
	answered bool
}

// maxSteps bounds the steps for which the store is read: the last ones.
const maxSteps = 1024

// stepsWithCalls returns the steps that have calls: those after the last answer, or all.
func stepsWithCalls(items []item.Item, all bool) []step {
	var steps []step
	// Of the current step; called: one of its calls is listed.
	var now step
	called := false
	// The first step that no answer follows yet.
	open := 0

	for i := range items {
		switch it := &items[i]; it.Kind {
		case item.Reasoning:
			now.reasoned = now.reasoned || !it.Blank()
		case item.Call:
			if !called {
				now.call, now.end = it.CallID, i
				steps = append(steps, now)
			}
			called = true
		case item.Preamble:
		// Found by a call of the same turn, or of the one before.
		default:
			now, called = step{begin: i + 1}, false
			if !it.IsAnswer() {
				continue
			}
			if !all {
				steps = steps[:0]
			}
			for ; open < len(steps); open++ {
				steps[open].answered = true
			}
		}
	}
	return steps
}

// firstKept returns the first of so many steps for which the store is read. Of an exact history many
// are left out together, because each time the prompt has another beginning.
func firstKept(steps int, exact bool) int {
	first := max(0, steps-maxSteps)
	if exact {
		const together = maxSteps / 2
		first = (first + together - 1) / together * together
	}
	return first
}

// foundTexts are the texts that are kept for steps.
type foundTexts struct {
	texts map[string]string
	// By the id of a call that is not the first one of its choice: the first one's.
	firsts map[string]string
	// The choices that have been read of the texts, by the names of these; nil: the text is none.
	choices map[string]*Written
	// Of these, when each was kept.
	kept []Choice
}

// readSteps reads what is kept for the steps. It reads once, and a second time if a client has
// left out the first call of a turn, or has put another one before it.
func readSteps(read textReader, steps []step, exact bool) (*foundTexts, error) {
	names := make([]string, 0, 4*len(steps))
	for i := range steps {
		names = appendNames(names, &steps[i], steps[i].call, exact)
		names = append(names, firstCallKey(steps[i].call))
	}
	texts, err := read(names)
	if err != nil {
		return nil, err
	}

	found := &foundTexts{texts: texts, firsts: map[string]string{}, choices: map[string]*Written{}}
	names = names[:0]
	for i := range steps {
		step := &steps[i]
		if found.has(step.call) {
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
	if !s.answered {
		names = append(names, reasoningKey(first))
	}
	if exact {
		names = append(names, lastingKey(first))
		if !s.answered {
			names = append(names, writtenKey(first))
		}
	}
	return names
}

// has reports whether something is kept under the id of a call.
func (f *foundTexts) has(call string) bool {
	for _, key := range [...]func(string) string{reasoningKey, writtenKey, lastingKey} {
		if _, ok := f.texts[key(call)]; ok {
			return true
		}
	}
	return false
}

// first returns the id of the first call of the choice that has the step's first call.
func (f *foundTexts) first(s *step) string {
	if first, ok := f.firsts[s.call]; ok {
		return first
	}
	return s.call
}

// choice returns what the model wrote where it made the step's first call; nil if nothing is kept.
// A text is read once: a request can name one id many times.
func (f *foundTexts) choice(s *step) *Written {
	first := f.first(s)
	name := lastingKey(first)
	text, ok := f.texts[name]
	if !ok && !s.answered {
		name = writtenKey(first)
		text, ok = f.texts[name]
	}
	if !ok {
		return nil
	}
	if choice, read := f.choices[name]; read {
		return choice
	}

	choice, at, ok := readWritten(first, text)
	f.choices[name] = choice
	if ok {
		f.kept = append(f.kept, Choice{calls: choice.calls, at: at, name: name})
	}
	return choice
}

// reasoning returns the reasoning that is kept for the step. That of a choice is found by each of
// its calls. After an answer there is none.
func (f *foundTexts) reasoning(s *step) (text string, ok bool) {
	if !s.answered {
		text, ok = f.texts[reasoningKey(f.first(s))]
	}
	return text, ok
}
