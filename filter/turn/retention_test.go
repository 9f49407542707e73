package turn

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// hinting is a context whose engine takes hints.
func hinting() (*RequestContext, *clock) {
	rc, clock := newContext()
	rc.KVHints, rc.Retention = true, retention.NewMemory()
	return rc, clock
}

const oneCall = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"

// TestHints makes two calls of an agent, whose tool takes 8 s, and requires the ranges that the prompts have.
func TestHints(t *testing.T) {
	t.Parallel()
	rc, clock := hinting()
	in := &Input{Instructions: said(Instructions, "first").Text, Items: []Item{said(User, "question")}, Tools: functions("f"), Session: "s"}

	first := prepare(t, rc, in)
	hints := first.Engine.Retention
	if hints == nil || hints.Scope != first.Affinity().Session {
		t.Fatalf("%+v", hints)
	}
	// Nobody else is known to have its head, and how long its tools take is not known.
	want := []retention.Directive{
		{End: len(first.Engine.Prompt), Priority: hints.Directives[0].Priority, Keep: retention.DefaultPause},
		{Output: true, Priority: hints.Directives[1].Priority, Keep: retention.DefaultPause},
	}
	if !slices.Equal(hints.Directives, want) {
		t.Errorf("the first call has %+v, want %+v", hints.Directives, want)
	}

	_, r := play(t, first, oneCall, engine.FinishStop)
	clock.Time = clock.Add(8 * time.Second)
	id := r.calls[0].ID
	in.Items = append(in.Items, Item{Kind: Reasoning, Text: "I look."}, Item{Kind: Call, CallID: id, Namespace: FunctionsNamespace, Name: "f", Text: "{}"}, Item{Kind: Result, CallID: id, Text: "seen"})
	second := prepare(t, rc, in)
	got := second.Engine.Retention.Directives
	if len(got) != 4 {
		t.Fatalf("the second call has %+v", got)
	}
	begin := func(d retention.Directive) string {
		return spell(t, second.Engine.Prompt[d.Start:min(d.Start+3, len(second.Engine.Prompt))])
	}
	if got[0].Keep <= got[1].Keep || begin(got[1]) != "<|start|>user<|message|>" || !strings.HasPrefix(spell(t, second.Engine.Prompt[got[2].Start:]), "<|start|>assistant<|channel|>analysis") {
		t.Errorf("the second call has %+v, which begin with %q and %q", got, begin(got[1]), begin(got[2]))
	}
	for _, d := range got[1:] {
		if d.Keep != 12*time.Second {
			t.Errorf("%+v is kept for %s", d, d.Keep)
		}
	}
	if got[2].End != len(second.Engine.Prompt) || !got[3].Output {
		t.Errorf("of %d tokens the second call has %+v", len(second.Engine.Prompt), got)
	}

	// The filter runs a tool itself.
	_, r = play(t, second, oneCall, engine.FinishStop)
	clock.Time = clock.Add(40 * time.Second)
	third, err := second.Continue(t.Context(), []Item{{Kind: Call, CallID: r.calls[0].ID, Namespace: FunctionsNamespace, Name: "f", Text: "{}"}, {Kind: Result, CallID: r.calls[0].ID, Text: "seen"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := third.Engine.Retention.Directives
	if now[len(now)-2].End != len(third.Engine.Prompt) || now[1].Keep != time.Minute || now[0] != got[0] {
		t.Errorf("of %d tokens the third call has %+v", len(third.Engine.Prompt), now)
	}
	if second.Engine.Retention.Directives[1].Keep != 12*time.Second {
		t.Error("the hints of a call have changed")
	}
}

func TestNoHints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*RequestContext, *Input)
		none   bool // no hints at all
	}{
		{"off", func(rc *RequestContext, _ *Input) { rc.KVHints = false }, true},
		{"nothing is remembered", func(rc *RequestContext, _ *Input) { rc.Retention = nil }, true},
		{"a prompt for no model", func(rc *RequestContext, _ *Input) { rc.Unbounded = true }, true},
		{"no tools", func(_ *RequestContext, in *Input) { in.Tools = nil }, true},
		{"no calls", func(_ *RequestContext, in *Input) { in.NoCalls = true }, true},
		{"two choices", func(_ *RequestContext, in *Input) { in.Engine.N = 2 }, false},
	} {
		rc, _ := hinting()
		in := &Input{Items: []Item{userHi}, Tools: functions("f")}
		c.change(rc, in)
		hints := prepare(t, rc, in).Engine.Retention
		switch {
		case c.none != (hints == nil):
			t.Errorf("%s: %+v", c.name, hints)
		case hints != nil && slices.ContainsFunc(hints.Directives, func(d retention.Directive) bool { return d.Output }):
			t.Errorf("%s: the output is kept: %+v", c.name, hints)
		}
	}
}

// TestHintsOfASummary: from a summary the conversation goes on, and nobody comes back to what it summarizes.
func TestHintsOfASummary(t *testing.T) {
	t.Parallel()
	rc, _ := hinting()
	in := &Input{Instructions: "Be terse.", Items: []Item{userHi}, Tools: functions("f"), Session: "s"}
	prepare(t, rc, in).heard.Began()
	in.Summarizes = true
	turn := prepare(t, rc, in)
	d := turn.Engine.Retention.Directives
	if len(d) != 3 || d[0].Priority == retention.Released || d[1].Priority != retention.Released || d[1].Start != d[0].End || d[1].End != len(turn.Engine.Prompt) || !d[2].Output || d[2].Priority != retention.Released {
		t.Errorf("%+v", d)
	}
}

// TestHintsFitPrompts makes conversations of any items, and requires that the prompt is the same as without
// hints, and that the head is what all of them begin with, and no token of the conversation.
func TestHintsFitPrompts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 3))
	rc, clock := hinting()
	plain, _ := newContext()
	plain.Now = clock.now
	rc.Model.Date, plain.Model.Date = DateNone, DateNone
	thought := 0
	for i := range 300 {
		in := &Input{Instructions: said(Instructions, "first").Text, Tools: functions("f", "g"), Session: strconv.Itoa(r.IntN(5))}
		in.Items = append(in.Items, said(User, strconv.Itoa(i)))
		answers := 0
		for j := range r.IntN(12) {
			switch r.IntN(4) {
			case 0:
				in.Items = append(in.Items, said(Reasoning, "thought"))
				fallthrough
			case 1:
				in.Items = append(in.Items, usedTool("call_"+strconv.Itoa(j))...)
			case 2:
				in.Items = append(in.Items, said(Answer, "answer"), said(User, "more"))
				answers = len(in.Items)
			case 3:
				in.Items = append(in.Items, said(Preamble, "now"))
			}
		}
		clock.Time = clock.Add(time.Duration(r.IntN(20)) * time.Second)

		with, without := prepare(t, rc, in), prepare(t, plain, in)
		with.heard.Began()
		if !slices.Equal(with.Engine.Prompt, without.Engine.Prompt) {
			t.Fatal("the prompt differs")
		}
		all, tokens := with.Engine.Retention.Directives, len(with.Engine.Prompt)
		if i == 0 {
			continue
		}
		if text := spell(t, with.Engine.Prompt[all[0].End:]); !strings.HasPrefix(text, "<|start|>user<|message|>This is the "+strconv.Itoa(i)+" ") {
			t.Fatalf("the head ends before %.60q", text)
		}
		end := 0
		for _, d := range all[:len(all)-1] {
			if d.Start != end || d.End > tokens {
				t.Fatalf("of %d tokens: %+v", tokens, all)
			}
			end = d.End
		}
		if end != tokens {
			t.Fatalf("of %d tokens only %d are kept: %+v", tokens, end, all)
		}

		// What goes with the answer is what a prompt with the answer does not begin with.
		answered := *in
		answered.Items = append(slices.Clone(in.Items), said(Answer, "last"), userHi)
		next := prepare(t, plain, &answered).Engine.Prompt
		shared := 0
		for shared < min(len(next), tokens) && next[shared] == with.Engine.Prompt[shared] {
			shared++
		}
		begin := all[len(all)-2].Start
		if slices.ContainsFunc(in.Items[answers:], func(i Item) bool { return i.Kind == Reasoning }) {
			thought++
			// Of the header that both have, reasoning has other tokens from the channel on.
			if shared < begin || shared > begin+4 {
				t.Fatalf("the answer leaves %d of %d tokens, and the hints say %+v", shared, tokens, all)
			}
		}
	}
	if thought < 50 {
		t.Errorf("only %d conversations have reasoning", thought)
	}
}

// TestHintsAreFree requires that nothing is allocated for hints that are off.
func TestHintsAreFree(t *testing.T) {
	var off heard
	items := []Item{{Kind: Result, CallID: "a"}}
	call := &engine.Request{Prompt: []harmony.Token{1}}
	if n := testing.AllocsPerRun(100, func() {
		off.Called("a")
		off.retained.next(items, call)
	}); n > 0 || call.Retention != nil {
		t.Errorf("%v allocations, %+v", n, call.Retention)
	}
}
