package turn

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// randomConversation generates items of which every call has an output: tool turns in
// parallel and in sequence, of functions and of built-in tools, texts without a
// phase, instructions inside, empty texts, reasoning that the client sends or that
// is kept.
func randomConversation(rng *rand.Rand, rc *RequestContext) []Item {
	var items []Item
	var open []string
	calls := 0
	text := func() string {
		if rng.IntN(6) == 0 {
			return []string{"", " \n"}[rng.IntN(2)]
		}
		return "text " + strconv.Itoa(rng.IntN(1000))
	}

	answer := func(id string) { items = append(items, Item{Kind: Result, CallID: id, Text: text()}) }
	for range rng.IntN(40) {
		switch kind := []Kind{Instructions, User, User, Reasoning, Preamble, Answer, Unphased, Unphased, Call, Call, Call, Result, Result, Tools}[rng.IntN(14)]; kind {
		case Tools:
			items = append(items, Item{Kind: Tools, Tools: someTools(rng)})
		case Call:
			calls++
			id := "call_" + strconv.Itoa(rng.IntN(3)*1000+calls)
			open = append(open, id)
			call := Item{Kind: Call, CallID: id, Namespace: []string{"", "mcp"}[rng.IntN(2)], Name: "f" + strconv.Itoa(calls%2), Text: "{}"}
			switch rng.IntN(4) {
			case 0:
				call.Namespace, call.Name, call.Builtin = "browser", "search", true
			case 1:
				call.Namespace, call.Name, call.Builtin = "python", "", true
			}
			items = append(items, call)
			if rng.IntN(3) == 0 {
				_ = rc.Memory.PutTexts(context.Background(), rc.Tenant, map[string]string{"reasoning:" + id: "kept for " + id})
			}
			if calls%4 == 0 {
				items = append(items, Item{Kind: Result, CallID: id, Text: text(), Hosted: true})
				open = open[:len(open)-1]
			}

		case Result:
			if len(open) > 0 {
				i := rng.IntN(len(open))
				answer(open[i])
				open = append(open[:i], open[i+1:]...)
			}

		default:
			items = append(items, Item{Kind: kind, Text: text()})
		}
	}

	for _, id := range open {
		answer(id)
	}
	return items
}

// someTools generates tools of few names, with one of few definitions each.
func someTools(rng *rand.Rand) *JoinedTools {
	j := &JoinedTools{}
	for range rng.IntN(3) {
		ns := harmony.Namespace{Name: []string{FunctionsNamespace, "mcp", "mcp.two"}[rng.IntN(3)]}
		for range 1 + rng.IntN(2) {
			ns.Tools = append(ns.Tools, harmony.Tool{Name: "f" + strconv.Itoa(rng.IntN(3)), Description: "d" + strconv.Itoa(rng.IntN(2))})
		}
		j.Namespaces = append(j.Namespaces, ns)
	}
	return j
}

// turnInput generates what can differ between the turns of a conversation.
func turnInput(rng *rand.Rand) Input {
	in := Input{Effort: []harmony.Effort{harmony.EffortLow, harmony.EffortHigh}[rng.IntN(2)], NoCalls: rng.IntN(4) == 0}
	if rng.IntN(2) == 0 {
		in.Tools = functions("f1")
	}
	if rng.IntN(2) == 0 {
		in.Builtins = builtins()
	}
	if rng.IntN(2) == 0 {
		in.Instructions = "instructions " + strconv.Itoa(rng.IntN(3))
	}
	return in
}

// samePrompts compares the prompts of a conversation with and without a prefix.
func samePrompts(t *testing.T, rc *RequestContext, in Input, items []Item, p *Prefix) {
	t.Helper()
	whole, prefixed := in, in
	whole.Items = items
	prefixed.Before, prefixed.Items = p, items[p.Len():]
	prefixed.Whole = func() ([]Item, *apierror.Error) { return items[:p.Len():p.Len()], nil }
	if diff := cmp.Diff(promptText(t, rc, &whole), promptText(t, rc, &prefixed)); diff != "" {
		t.Errorf("a prefix of %d of %d items (-whole +prefixed):\n%s\n%v", p.Len(), len(items), diff, items)
	}
}

// TestPrefix shows that the prompt of a conversation does not depend on how many of
// its items are in a prefix, and in how many steps the prefix was made.
func TestPrefix(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	reused := 0

	for range 1500 {
		rc, _ := newContext()
		items := randomConversation(rng, rc)
		prefixes := append(make([]*Prefix, 0, 7), nil)

		for range rng.IntN(6) {
			p := prefixes[rng.IntN(len(prefixes))] // now and then one that has been extended
			to := p.Len() + rng.IntN(len(items)-p.Len()+1)
			next, err := Extend(context.Background(), rc, p, items[p.Len():to])
			if err != nil {
				t.Fatalf("%v\n%v", err, items)
			}

			prefixes = append(prefixes, next)
			if next.Len() != to {
				t.Fatalf("a prefix of %d items is one of %d", to, next.Len())
			}
		}

		for _, p := range prefixes {
			in := turnInput(rng)
			in.Items = items
			prepare(t, rc, &in)
			kept := rc.Memory.(*memory).bytes()
			samePrompts(t, rc, in, items, p)
			if rc.Memory.(*memory).bytes() != kept {
				t.Errorf("a prefix of %d of %d items is another conversation, with a date of its own", p.Len(), len(items))
			}

			if t.Failed() {
				return
			}

			// What is rendered is not kept as items.
			if p != nil && p.Bytes() < int64(item.Overhead*p.Len()) {
				reused++
			}
		}
	}

	if reused == 0 {
		t.Error("no prefix has tokens in the place of items")
	}
}

// TestPrefixTruncated shows that a conversation is truncated in the same way with
// and without a prefix.
func TestPrefixTruncated(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		rc, _ := newContext()
		items := append(randomConversation(rng, rc), userHi)
		p, err := Extend(context.Background(), rc, nil, items[:rng.IntN(len(items))])
		if err != nil {
			t.Fatal(err)
		}
		in := turnInput(rng)
		in.Truncate = true
		whole := in
		whole.Items = items
		rc.Model.ContextLength = max(len(prepare(t, rc, &whole).Engine.Prompt)*10/11, 150)
		rc.Unbounded = true
		samePrompts(t, rc, in, items, p)
	}
}

// TestPrefixSplit splits a conversation at all pairs of indexes.
func TestPrefixSplit(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	_ = rc.Memory.PutTexts(context.Background(), "", map[string]string{"reasoning:b": "kept for b"})
	call := func(id string) Item { return Item{Kind: Call, CallID: id, Name: "f", Text: "{}"} }
	result := func(id string) Item { return Item{Kind: Result, CallID: id, Text: "result"} }
	items := []Item{
		{Kind: Instructions, Text: "first"},
		{Kind: Instructions, Text: "second"},
		userHi,
		{Kind: Reasoning, Text: "why"},
		{Kind: Unphased, Text: "a preamble"},
		call("a"), result("a"),
		{Kind: Unphased, Text: "an answer"},
		{Kind: Instructions, Text: "third"},
		userHi,
		{Kind: Unphased, Text: "a preamble"},
		call("b"), call("c"), result("c"), result("b"),
		{Kind: Reasoning, Text: "why not"},
		call("a"), result("a"),
	}

	rng := rand.New(rand.NewPCG(7, 8))
	for i := range len(items) + 1 {
		first, err := Extend(context.Background(), rc, nil, items[:i])
		if err != nil {
			t.Fatal(err)
		}

		for j := i; j <= len(items); j++ {
			second, err := Extend(context.Background(), rc, first, items[i:j])
			if err != nil {
				t.Fatal(err)
			}
			samePrompts(t, rc, turnInput(rng), items, second)
			samePrompts(t, rc, turnInput(rng), items, first)
		}
	}
}

// TestPrefixErrors shows that a conversation with a prefix has the same errors.
func TestPrefixErrors(t *testing.T) {
	t.Parallel()
	call := Item{Kind: Call, CallID: "a", Name: "f", Path: "earlier"}
	result := Item{Kind: Result, CallID: "a"}

	for name, c := range map[string]struct {
		before, items []Item
		want          string
	}{
		"no output":     {[]Item{userHi, call, userHi}, nil, `The tool call with the id "a" has no output.`},
		"called twice":  {[]Item{userHi, call, userHi}, []Item{call}, `Two tool calls have the id "a".`},
		"answered":      {[]Item{userHi, call, result}, []Item{result}, `There is no tool call with the id "a" before its output, or the call has an output already.`},
		"too many":      {[]Item{userHi, userHi, userHi}, []Item{userHi, userHi, userHi, userHi}, "The conversation has more than 6 messages, calls and results."},
		"not too many":  {[]Item{userHi, userHi, userHi}, []Item{userHi, userHi, userHi}, ""},
		"answered late": {[]Item{userHi, call, userHi}, []Item{result}, ""},
		"several": {
			[]Item{userHi, call, {Kind: Call, CallID: "b"}},
			[]Item{userHi},
			`The tool calls with the ids "a" and "b" have no outputs.`,
		},
		"several answered": {
			[]Item{userHi, call, result},
			[]Item{result, {Kind: Result, CallID: "b"}},
			`There are no tool calls with the ids "a" and "b" before their outputs, or the calls have outputs already.`,
		},
		"called twice, answered": {[]Item{userHi, call}, []Item{call, result, result}, `Two tool calls have the id "a".`},
		"all at once": {
			[]Item{userHi, call},
			[]Item{call, {Kind: Result, CallID: "c"}, {Kind: Call, CallID: "b"}},
			`Two tool calls have the id "a". There is no tool call with the id "c" before its output, or the call has an output already. ` +
				`The tool call with the id "b" has no output.`,
		},
	} {
		rc, _ := newContext()
		rc.Limits.Items = 6
		p, err := Extend(context.Background(), rc, nil, c.before)
		if err != nil {
			t.Fatal(err)
		}

		_, apiErr := Prepare(context.Background(), rc, &Input{Before: p, Items: c.items})
		if got := textOf(apiErr); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func textOf(err *apierror.Error) string {
	if err == nil {
		return ""
	}
	return err.Message
}

// TestPrefixShared extends one prefix in several ways at the same time.
func TestPrefixShared(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	rc.Memory = nil
	var items []Item
	var p *Prefix

	// Until its tokens were moved, so that there is room after them.
	const moved = 100 * 4
	for before := int64(0); p == nil || p.Bytes()-before < moved; {
		if p != nil {
			before = p.Bytes()
		}
		more := []Item{userHi, {Kind: Answer, Text: "a"}}
		var err error
		if p, err = Extend(context.Background(), rc, p, more); err != nil {
			t.Fatal(err)
		}
		items = append(items, more...)
	}

	var wg sync.WaitGroup
	longer := make([]*Prefix, 8)
	conversations := make([][]Item, len(longer))

	for i := range longer {
		conversations[i] = append(items[:len(items):len(items)], userHi, Item{Kind: Answer, Text: "answer " + strconv.Itoa(i)})
		wg.Go(func() {
			var err error
			if longer[i], err = Extend(context.Background(), rc, p, conversations[i][len(items):]); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	for i, next := range longer {
		samePrompts(t, rc, Input{}, conversations[i], next)
		samePrompts(t, rc, Input{}, conversations[i], p)
	}
}
