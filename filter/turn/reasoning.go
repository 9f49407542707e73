package turn

import (
	"context"
	"fmt"
	"time"
)

// How long a request waits for the store before it goes on without the texts
// kept there, and how long the write at the end of its reply may take.
const (
	readTimeout  = time.Second
	writeTimeout = 2 * time.Second
)

// Keep is a job for the store: it writes what later requests need of a choice that
// ended in tool calls, the reasoning that led to them, for clients that do not send
// it back.
type Keep struct {
	memory Memory
	tenant string
	// By name.
	texts map[string]string
}

// newKeep returns the job for one choice. The text is kept once, under the id of the
// first call; the names of the other calls refer to that id.
func (rc *RequestContext) newKeep(calls []*CalledTool, text string) *Keep {
	first := calls[0].ID
	texts := map[string]string{reasoningKey(first): text}
	for _, call := range calls[1:] {
		texts[firstCallKey(call.ID)] = first
	}
	return &Keep{rc.Memory, rc.Tenant, texts}
}

// Do writes the reasoning to the store. It takes at most two seconds, and goes on
// when ctx ends. It has no result.
func (k *Keep) Do(ctx context.Context) (result any, err error) {
	// The client may have gone, and comes back with the results of the calls.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err = k.memory.PutTexts(ctx, k.tenant, k.texts); err != nil {
		err = fmt.Errorf("keep the reasoning of tool calls: %w", err)
	}
	return nil, err
}

// maxKept bounds the reasoning that is kept for one turn, in bytes.
const maxKept = 1 << 20

// reasoningText is the reasoning of a choice, up to maxKept bytes.
type reasoningText struct {
	text []byte
	// There is more.
	full bool
}

// add adds a piece of a reasoning part; begins reports that it is the part's
// first.
func (t *reasoningText) add(p []byte, begins bool) {
	between := ""
	if begins && len(t.text) > 0 {
		between = "\n\n"
	}

	if t.full = t.full || len(t.text)+len(between)+len(p) > maxKept; !t.full {
		t.text = append(append(t.text, between...), p...)
	}
}

// textReader returns the texts that are kept under these names, by name. It may
// return texts of other names too.
type textReader func(names []string) (map[string]string, error)

// read is a [textReader] of what the job writes, before or after it is done. The
// Keep may be nil.
func (k *Keep) read([]string) (map[string]string, error) {
	if k == nil {
		return map[string]string{}, nil
	}
	return k.texts, nil
}

// withKeptReasoning inserts the reasoning that the store has for tool calls, see
// [insertReasoning].
func (rc *RequestContext) withKeptReasoning(ctx context.Context, items []Item) ([]Item, error) {
	if rc.Memory == nil {
		return items, nil
	}
	return insertReasoning(items, func(names []string) (map[string]string, error) {
		return rc.Memory.Texts(ctx, rc.Tenant, names)
	})
}

// insertReasoning inserts the reasoning that is kept for a tool call before the step
// that made the call, if the items have none there. It ignores steps before the
// last answer: the model does not see their reasoning anyway. On an error it
// returns the items unchanged.
func insertReasoning(items []Item, read textReader) ([]Item, error) {
	steps := unreasoned(items)
	if len(steps) == 0 {
		return items, nil
	}

	kept, err := keptReasoning(read, steps)
	if err != nil {
		return items, fmt.Errorf("read the reasoning of tool calls: %w", err)
	}

	out := make([]Item, 0, len(items)+len(kept))
	from := 0
	for _, step := range steps {
		if text, ok := kept[step.call]; ok {
			out = append(append(out, items[from:step.begin]...), Item{Kind: Reasoning, Text: text})
			from = step.begin
		}
	}
	return append(out, items[from:]...), nil
}

// step is a step of the assistant with tool calls.
type step struct {
	// Index of its first item.
	begin int
	// Id of its first call.
	call string
	// It follows the result of a hosted call, so it may belong to a turn whose reasoning precedes
	// that call.
	hosted bool
}

// maxKeptSteps bounds the steps whose reasoning is read from the store: the last
// ones.
const maxKeptSteps = 1024

// unreasoned returns the steps after the last answer that have calls and no
// reasoning before the calls.
func unreasoned(items []Item) []step {
	var steps []step
	// Of the current step; reasoned: its reasoning is known, or one of its calls is listed.
	begin, reasoned, hosted := 0, false, false

	for i := range items {
		switch items[i].Kind {
		case Reasoning:
			reasoned = true
		case Call:
			if !reasoned {
				steps = append(steps, step{begin, items[i].CallID, hosted})
			}
			reasoned = true
		case Preamble:
		// Found by a call of the same turn, or of the one before.
		case Tools:
			begin, reasoned = i+1, false
		default:
			begin, reasoned, hosted = i+1, false, items[i].Hosted
			if items[i].Kind == Answer && items[i].Text != "" {
				steps = steps[:0]
			}
		}
	}
	return steps[max(0, len(steps)-maxKeptSteps):]
}

// keptReasoning returns the reasoning that is kept for the steps, by the ids of their
// first calls. It reads once, and a second time if a client has left out the first
// call of a turn.
func keptReasoning(read textReader, steps []step) (map[string]string, error) {
	names := make([]string, 0, 2*len(steps))
	for _, step := range steps {
		names = append(names, reasoningKey(step.call), firstCallKey(step.call))
	}

	found, err := read(names)
	if err != nil {
		return nil, err
	}

	kept := make(map[string]string, len(steps))
	names = names[:0]
	for _, step := range steps {
		if text, ok := found[reasoningKey(step.call)]; ok {
			kept[step.call] = text
		} else if first, ok := found[firstCallKey(step.call)]; ok && !step.hosted {
			names = append(names, reasoningKey(first))
		}
	}

	if len(names) == 0 {
		return kept, nil
	}
	others, err := read(names)
	if err != nil {
		return nil, err
	}

	for _, step := range steps {
		if text, ok := others[reasoningKey(found[firstCallKey(step.call)])]; ok {
			kept[step.call] = text
		}
	}
	return kept, nil
}

func reasoningKey(callID string) string { return "reasoning:" + callID }

func firstCallKey(callID string) string { return "first_call:" + callID }
