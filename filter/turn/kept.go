package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// How long a request waits for what is kept before it does without, and the
// end of its reply for the rest to be kept.
const (
	readTimeout  = time.Second
	writeTimeout = 2 * time.Second
)

// date is the conversation's date: the day, in UTC, on which its opening was
// first seen. So the prompt of a conversation begins with the same tokens on
// every day, and the engine's prefix cache goes on to serve it. With an error
// it is today.
func (s *Scope) date(ctx context.Context, in *Input, o opening) (string, error) {
	switch s.Model.Date {
	case "", DateUTC:
	case DateNone:
		return "", nil
	default:
		return s.Model.Date, nil
	}
	today := s.Now().UTC().Format(time.DateOnly)
	if s.Memory == nil {
		return today, nil
	}
	key := "date:" + o.key(cmp.Or(s.Model.Upstream, in.Engine.Model))
	pinned, err := s.Memory.FirstText(ctx, s.Tenant, key, today)
	if err == nil && pinned < s.Now().UTC().Add(-maxDateAge).Format(time.DateOnly) {
		pinned = today
		err = s.Memory.PutTexts(ctx, s.Tenant, map[string]string{key: today})
	}
	if err != nil {
		return today, fmt.Errorf("read the conversation's date: %w", err)
	}
	return pinned, nil
}

// maxDateAge bounds how old a conversation's date can be: many conversations
// open with the same words, and one is always going on.
const maxDateAge = 48 * time.Hour

// opening tells conversations apart by how they begin: their instructions up
// to and with the first user's text.
type opening struct {
	sums []byte // of each text its kind and its hash
	user bool   // the user's text is there
}

// newOpening is that of a request's conversation: items are those behind before.
func newOpening(in *Input, before *Prefix, items []Item) opening {
	var o opening
	if in.Instructions != "" {
		o = o.with([]Item{{Kind: Instructions, Text: in.Instructions}})
	}
	return o.followed(before.opening).with(items)
}

// with is the opening with what of the next items belongs to it.
func (o opening) with(items []Item) opening {
	for i := 0; i < len(items) && !o.user; i++ {
		if kind := items[i].Kind; kind == Instructions || kind == User {
			sum := sha256.Sum256([]byte(items[i].Text))
			o.sums = append(append(slices.Clip(o.sums), byte(kind)), sum[:]...)
			o.user = kind == User
		}
	}
	return o
}

// followed is the opening with another behind it.
func (o opening) followed(by opening) opening {
	return opening{slices.Concat(o.sums, by.sums), by.user}
}

// key is the opening and the model as one short text.
func (o opening) key(model string) string {
	first := sha256.Sum256([]byte(model))
	sum := sha256.Sum256(slices.Concat(first[:], o.sums))
	return hex.EncodeToString(sum[:])
}

// withKeptReasoning puts the reasoning kept for a tool call before the step
// that made the call, where the client sent none. Only steps after the last
// answer are looked at: reasoning before it is not shown to the model anyway.
// With an error it is the items as they are.
func (s *Scope) withKeptReasoning(ctx context.Context, items []Item) ([]Item, error) {
	if s.Memory == nil {
		return items, nil
	}
	steps := unreasoned(items)
	if len(steps) == 0 {
		return items, nil
	}
	kept, err := s.keptReasoning(ctx, steps)
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

// step is a step of the assistant: where it begins, and its first call.
type step struct {
	begin  int
	call   string
	hosted bool // the result of a hosted call is before it: it may be of the same turn, whose reasoning is there
}

// maxKeptSteps bounds for how many steps kept reasoning is read: the last ones.
const maxKeptSteps = 1024

// unreasoned is the steps behind the last answer that have calls but no
// reasoning before them.
func unreasoned(items []Item) []step {
	var steps []step
	begin, reasoned, hosted := 0, false, false // where the step began, whether its reasoning is known, and see step
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
		default:
			begin, reasoned, hosted = i+1, false, items[i].Hosted
			if items[i].Kind == Answer && items[i].Text != "" {
				steps = steps[:0]
			}
		}
	}
	return steps[max(0, len(steps)-maxKeptSteps):]
}

// keepReasoning keeps the text for the calls of one turn: once, under the id of
// the first, to which the others refer.
func (t *Turn) keepReasoning(calls []*CalledTool, text string) error {
	first := calls[0].ID
	texts := map[string]string{reasoningKey(first): text}
	for _, call := range calls[1:] {
		texts[firstCallKey(call.ID)] = first
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), writeTimeout)
	defer cancel()
	if err := t.scope.Memory.PutTexts(ctx, t.scope.Tenant, texts); err != nil {
		return fmt.Errorf("keep the reasoning of tool calls: %w", err)
	}
	return nil
}

// keptReasoning gives the texts kept for the calls of the steps, by call id. It
// reads once, and once more where a client has left out a turn's first call.
func (s *Scope) keptReasoning(ctx context.Context, steps []step) (map[string]string, error) {
	names := make([]string, 0, 2*len(steps))
	for _, step := range steps {
		names = append(names, reasoningKey(step.call), firstCallKey(step.call))
	}
	found, err := s.Memory.Texts(ctx, s.Tenant, names)
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
	others, err := s.Memory.Texts(ctx, s.Tenant, names)
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
