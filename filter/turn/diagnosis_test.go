package turn

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// said is a text of many blocks of tokens.
func said(kind Kind, name string) Item {
	return Item{Kind: kind, Text: strings.Repeat("This is the "+name+" text. ", 30)}
}

func usedTool(id string) []Item {
	call := Item{Kind: Call, CallID: id, Name: "f", Text: `{"path":"` + strings.Repeat("a/", 50) + `"}`}
	result := said(Result, "result of "+id)
	result.CallID = id
	return []Item{call, result}
}

// answered makes a turn to its end, and returns what is found of its prompt.
func answered(t *testing.T, rc *RequestContext, in *Input, text string) (*Turn, *Diagnosis) {
	t.Helper()
	turn := prepare(t, rc, in)
	_, r := play(t, turn, text, engine.FinishStop)
	r.Cached(&engine.Usage{CachedTokens: len(turn.Engine.Prompt), Replica: "a"})
	var s Summary
	r.AddTo(&s)
	if s.Diagnosis != turn.Diagnosis() {
		t.Error("the summary has another diagnosis")
	}
	return turn, s.Diagnosis
}

func diagnosing() *RequestContext {
	rc, _ := newContext()
	rc.Tenant = "a"
	rc.Prompts = diagnosis.NewPrompts(1 << 20)
	return rc
}

const plainAnswer = "<|channel|>final<|message|>Yes.<|return|>"

// TestCauses makes two turns of a conversation, with a change in between.
func TestCauses(t *testing.T) {
	t.Parallel()
	begin := func() *Input {
		return &Input{Instructions: said(Instructions, "first").Text, Items: []Item{said(User, "question")}, Tools: functions("f", "g"), Session: "s", Replies: Replies{Own: "one"}}
	}

	goOn := func(in *Input) {
		in.Items = append(in.Items, said(Answer, "answer"), said(User, "second"))
	}

	for _, c := range []struct {
		name   string
		change func(*RequestContext, *Input)
		want   diagnosis.Cause
	}{
		{"nothing", func(*RequestContext, *Input) {}, diagnosis.None},
		{"a turn more", func(_ *RequestContext, in *Input) { goOn(in) }, diagnosis.None},
		{"instructions", func(_ *RequestContext, in *Input) { in.Instructions += "x" }, diagnosis.Instructions},
		{"instructions that the conversation begins with", func(_ *RequestContext, in *Input) {
			in.Items = append([]Item{said(Instructions, "second")}, in.Items...)
		}, diagnosis.Instructions},
		{"a tool less", func(_ *RequestContext, in *Input) { in.Tools = functions("f") }, diagnosis.Tools},
		{"tools in another order", func(_ *RequestContext, in *Input) { in.Tools = functions("g", "f") }, diagnosis.ToolsReordered},
		{"tools that are not offered", func(_ *RequestContext, in *Input) { in.NoCalls = true }, diagnosis.Tools},
		{"a built-in tool", func(_ *RequestContext, in *Input) { in.Builtins = []harmony.Namespace{harmony.BrowserNamespace()} }, diagnosis.Tools},
		{"the effort", func(_ *RequestContext, in *Input) { in.Effort = harmony.EffortHigh }, diagnosis.Effort},
		{"the default effort by its name", func(_ *RequestContext, in *Input) { in.Effort = harmony.EffortMedium }, diagnosis.None},
		{"the effort of the model", func(rc *RequestContext, _ *Input) { rc.Model.Effort = harmony.EffortLow }, diagnosis.Effort},
		{"the date", func(rc *RequestContext, _ *Input) { rc.Model.Date = "2026-11-22" }, diagnosis.Date},
		{"the identity", func(rc *RequestContext, _ *Input) { rc.Model.Identity = "You are nobody." }, diagnosis.System},
		{"the model", func(rc *RequestContext, _ *Input) { rc.Model.Upstream = "other" }, diagnosis.Model},
		{"the salt", func(_ *RequestContext, in *Input) { in.Engine.CacheSalt = "x" }, diagnosis.Salt},
		{"the format", func(_ *RequestContext, in *Input) {
			in.Format = &Format{Announced: &harmony.ResponseFormat{Name: "n", Schema: []byte(`{"type":"object","properties":{"a":{"type":"string","description":"` + said(User, "x").Text + `"}}}`)}}
		}, diagnosis.Format},
		{"the first text", func(_ *RequestContext, in *Input) { in.Items[0].Text = "Another " + in.Items[0].Text; goOn(in) }, diagnosis.History},
		{"a compaction", func(_ *RequestContext, in *Input) {
			summary := said(User, "summary")
			summary.Summary = true
			in.Items = append(in.Items, summary, said(User, "third"), said(User, "fourth"))
		}, diagnosis.Compacted},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc := diagnosing()
			first := begin()
			if c.want == diagnosis.Compacted {
				goOn(first)
			}

			if _, d := answered(t, rc, first, plainAnswer); d.Session.Known {
				t.Errorf("the first turn: %+v", d)
			}

			in := begin()
			in.Replies = Replies{Own: "two", Compared: "one"}
			model := *rc.Model
			rc.Model = &model
			c.change(rc, in)
			turn, d := answered(t, rc, in, plainAnswer)
			if d.Session.Cause != c.want || d.Reply != d.Session || !d.Session.Known || d.Missed() != diagnosis.None || d.Cached != len(turn.Engine.Prompt) || d.Replica != "a" {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestSessionWithoutName recognizes a conversation by the first text of its user, of the
// same tenant.
func TestSessionWithoutName(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	in := &Input{Instructions: said(Instructions, "first").Text, Items: []Item{said(User, "question")}, Replies: Replies{Own: "one"}}
	answered(t, rc, in, plainAnswer)
	in.Instructions = said(Instructions, "second").Text
	other := *rc
	other.Tenant = "b"
	if _, d := answered(t, &other, in, plainAnswer); d.Session.Known {
		t.Errorf("another tenant: %+v", d)
	}
	if _, d := answered(t, rc, in, plainAnswer); d.Session.Cause != diagnosis.Instructions {
		t.Errorf("%+v", d)
	}
	in.Items = []Item{said(User, "other question")}
	if _, d := answered(t, rc, in, plainAnswer); d.Session.Known {
		t.Errorf("another conversation: %+v", d)
	}
}

// TestEngineReportsNothing requires that a prompt is remembered although the engine does
// not say what it had in its cache.
func TestEngineReportsNothing(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	in := &Input{Items: []Item{said(User, "question")}, Session: "s", Replies: Replies{Own: "one"}}
	play(t, prepare(t, rc, in), plainAnswer, engine.FinishStop)
	in.Effort = harmony.EffortHigh
	d := prepare(t, rc, in).Diagnosis()
	if d.Session.Cause != diagnosis.Effort || d.Cached != engine.Unknown || d.Missed() != diagnosis.None {
		t.Errorf("%+v", d)
	}
}

// TestNotDiagnosed has turns that are neither compared nor remembered.
func TestNotDiagnosed(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	in := &Input{Items: []Item{said(User, "question")}, Session: "s"}
	if d := prepare(t, rc, in).Diagnosis(); d != nil {
		t.Errorf("a turn of no reply: %+v", d)
	}
	in.Replies.Own = "one"
	prepare(t, rc, in) // no engine answers it
	unbounded := *rc
	unbounded.Unbounded = true
	if d := prepare(t, &unbounded, in).Diagnosis(); d != nil {
		t.Errorf("a prompt that no model gets: %+v", d)
	}
	if d := prepare(t, rc, in).Diagnosis(); d.Session.Known {
		t.Errorf("%+v", d)
	}
	if d := (*Turn)(nil).Diagnosis(); d != nil {
		t.Error(d)
	}
}

// TestDiagnosisOfTools follows an agent: each step of its turn continues the one before,
// and the turn after the answer does not, because its reasoning is not shown any more. A
// client that does not send the reasoning back, and a memory that has lost it, are told
// apart.
func TestDiagnosisOfTools(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	memory := rc.Memory
	calls := `<|channel|>analysis<|message|>I look at that with great care, and at some length, so that there are many tokens of it.<|end|>` +
		`<|start|>assistant to=functions.f<|channel|>commentary json<|message|>` + usedTool("")[0].Text + `<|call|>`
	items := []Item{said(User, "question")}
	expect := func(cause diagnosis.Cause, text string) {
		t.Helper()
		if _, d := answered(t, rc, &Input{Items: items, Tools: functions("f"), Session: "s", Replies: Replies{Own: "r"}}, text); d.Session.Cause != cause {
			t.Errorf("%d items: %+v", len(items), d)
		}
	}

	expect(diagnosis.None, calls)
	items = append(items, usedTool("call_1")...)
	expect(diagnosis.None, calls)
	items = append(items, usedTool("call_2")...)
	expect(diagnosis.None, plainAnswer)
	unfinished := items
	items = append(slices.Clip(items), Item{Kind: Answer, Text: "Yes."}, said(User, "second"))
	expect(diagnosis.Reasoning, plainAnswer)
	rc.Prompts, items = diagnosis.NewPrompts(1<<20), unfinished
	expect(diagnosis.None, calls)
	rc.Memory, items = newMemory(), append(items, usedTool("call_3")...)
	expect(diagnosis.ReasoningLost, plainAnswer)
	rc.Memory, items = memory, unfinished
	expect(diagnosis.None, plainAnswer) // the other prompt is still remembered
}

// TestDiagnosisOfPrefix requires that a conversation is found the same whether its
// beginning was rendered before or not.
func TestDiagnosisOfPrefix(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	summary := said(User, "summary")
	summary.Summary = true
	items := []Item{said(User, "question"), said(Answer, "answer"), summary, said(User, "second"), said(Answer, "answer"), said(User, "third")}
	before, err := Extend(context.Background(), rc, nil, items[:5])
	if err != nil {
		t.Fatal(err)
	}

	whole := &Input{Instructions: said(Instructions, "i").Text, Items: items, Session: "s", Replies: Replies{Own: "one"}}
	answered(t, rc, whole, plainAnswer)
	rest := *whole
	rest.Before, rest.Items = before, items[5:]
	if _, d := answered(t, rc, &rest, plainAnswer); !d.Session.Known || d.Session.Cause != diagnosis.None {
		t.Errorf("%+v", d)
	}

	rest.Instructions = said(Instructions, "j").Text
	if _, d := answered(t, rc, &rest, plainAnswer); d.Session.Cause != diagnosis.Instructions {
		t.Errorf("%+v", d)
	}

	sumsOf := func(in *Input) diagnosis.Head {
		t.Helper()
		conversation, err := prompt.New(rc, in)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := conversation.Render(t.Context(), rc, &toolset.Set{})
		if err != nil {
			t.Fatal(err)
		}
		return conversation.Sums(&rendered)
	}
	if head := sumsOf(&rest); head.Summary != diagnosis.Text(summary.Text) || head.First != sumsOf(whole).First {
		t.Errorf("%+v", head)
	}
}

// TestDiagnosisOfContinue requires that the prompts of a reply's further turns are
// remembered, and that the diagnosis is that of the first.
func TestDiagnosisOfContinue(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	in := &Input{Items: []Item{said(User, "question")}, Tools: functions("f"), Session: "s", Replies: Replies{Own: "one"}}
	first, d := answered(t, rc, in, plainAnswer)
	next, err := first.Continue(t.Context(), append([]Item{said(Reasoning, "thought")}, usedTool("call_1")...), 0)
	if err != nil {
		t.Fatal(err)
	}

	r := next.NewReader(func(Event) {})
	if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, plainAnswer), Finish: engine.FinishStop}); err != nil {
		t.Fatal(err)
	}

	r.Cached(&engine.Usage{CachedTokens: 7, Replica: "b"})
	if next.Diagnosis() != d || d.Cached != len(first.Engine.Prompt) || d.Replica != "a" {
		t.Errorf("%+v", next.Diagnosis())
	}

	in.Items = slices.Concat(in.Items, []Item{said(Reasoning, "thought")}, usedTool("call_1"), usedTool("call_2"))
	_, d = answered(t, rc, in, plainAnswer)
	if want := len(next.Engine.Prompt) / diagnosis.BlockTokens * diagnosis.BlockTokens; d.Session.Shared != want || d.Session.Cause != diagnosis.None || d.Session.Missed(0, "c") != diagnosis.OtherReplica {
		t.Errorf("%+v, want %d shared tokens", d, want)
	}
}

// TestDiagnosisOfTruncation lets a conversation grow beyond the context.
func TestDiagnosisOfTruncation(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	rc.Model = &Model{ContextLength: 1500}
	in := &Input{Items: []Item{said(User, "question")}, Session: "s", Truncate: true, Replies: Replies{Own: "one"}}
	causes := make([]string, 0, 8)
	for i := range cap(causes) {
		_, d := answered(t, rc, in, plainAnswer)
		causes = append(causes, d.Session.Cause.String())
		in.Items = append(in.Items, said(Answer, strconv.Itoa(i)), said(User, strconv.Itoa(i)))
	}
	if causes[1] != "" || causes[7] != "truncated" {
		t.Errorf("%q", causes)
	}
}

// TestDateIsPinned requires that a conversation loses nothing at midnight, and that the
// date is the cause if the store has forgotten it.
func TestDateIsPinned(t *testing.T) {
	t.Parallel()
	rc := diagnosing()
	now := time.Date(2026, 11, 21, 23, 59, 0, 0, time.UTC)
	rc.Now = func() time.Time { return now }
	in := &Input{Items: []Item{said(User, "question")}, Replies: Replies{Own: "one"}}
	answered(t, rc, in, plainAnswer)
	now = now.Add(time.Hour)
	if _, d := answered(t, rc, in, plainAnswer); d.Session.Cause != diagnosis.None {
		t.Errorf("%+v", d)
	}
	rc.Memory = newMemory()
	if _, d := answered(t, rc, in, plainAnswer); d.Session.Cause != diagnosis.Date {
		t.Errorf("%+v", d)
	}
}

// TestCanonicalSchemas requires that a client that shuffles the members of its schemas
// loses nothing if they are sorted, and is told if they are not.
func TestCanonicalSchemas(t *testing.T) {
	t.Parallel()
	shuffled := []string{
		`{"type":"object","properties":{"b":{"type":"string","description":"` + said(User, "b").Text + `"},"a":{"type":"number"}},"required":["b","a"]}`,
		`{"required":["b","a"],"properties":{"a":{"type":"number"},"b":{"description":"` + said(User, "b").Text + `","type":"string"}},"type":"object"}`,
	}

	for _, canonical := range []bool{false, true} {
		rc := diagnosing()
		rc.Model = &Model{Canonical: canonical}
		keys := make([]string, 0, len(shuffled))
		var last *Diagnosis

		for _, schema := range shuffled {
			tools := functions("f")
			tools[0].Tools[0].Parameters = []byte(schema)
			turn, d := answered(t, rc, &Input{Items: []Item{said(User, "question")}, Tools: tools, Replies: Replies{Own: "one"}}, plainAnswer)
			keys, last = append(keys, turn.Affinity().Prefix), d
			if string(tools[0].Tools[0].Parameters) != schema {
				t.Error("the client's schema has changed")
			}
		}

		want := diagnosis.ToolsReordered
		if canonical {
			want = diagnosis.None
		}

		if last.Session.Cause != want || (keys[0] == keys[1]) != canonical {
			t.Errorf("sorted: %t, %+v, %q", canonical, last, keys)
		}
	}

	rc := diagnosing()
	rc.Model = &Model{Canonical: true}
	deep := functions("f")
	deep[0].Tools[0].Parameters = []byte(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000))
	if _, err := Prepare(context.Background(), rc, &Input{Items: []Item{userHi}, Tools: deep}); err == nil || err.Param != "tools" {
		t.Errorf("a schema that nests too deep: %v", err)
	}
}

// TestDiagnosisOfOutput lets a client send the newest step back, which no prompt has had before: what
// leaves it as the model wrote it has no cause, nor has another step in its place.
func TestDiagnosisOfOutput(t *testing.T) {
	t.Parallel()
	const (
		thought  = "<|channel|>analysis<|message|>I look at that with great care, and at some length, so that there are many tokens of it.<|end|><|start|>assistant"
		header   = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
		path     = "shape/area/of/a/rectangle/with/a/name/that/has/several/tokens/and/some/more/of/them/until/it/is/long.go"
		argument = `{"path": "` + path + `"}`
		output   = thought + header + argument + "<|call|>"
	)
	other := func(in *Input) { in.Items[1].Text = strings.Replace(argument, "rectangle", "circle", 1) }
	exact, canonical := HistoryExact, HistoryCanonical

	for name, c := range map[string]struct {
		history string
		output  string
		change  func(*RequestContext, *Input)
		want    diagnosis.Cause
	}{
		"as it was": {exact, output, nil, diagnosis.None},
		"arguments written again": {exact, output, func(_ *RequestContext, in *Input) {
			in.Items[1].Text = strings.ReplaceAll(argument, " ", "")
		}, diagnosis.None},
		"in the library's form already":            {canonical, thought + " to=functions.f<|channel|>commentary json<|message|>" + argument + "<|call|>", func(*RequestContext, *Input) {}, diagnosis.None},
		"canonical":                                {canonical, output, nil, diagnosis.Respelled},
		"arguments of a canonical history changed": {canonical, output, func(_ *RequestContext, in *Input) { other(in) }, diagnosis.Respelled},
		"repaired":                                 {exact, thought + strings.Replace(header, "commentary", "analysis", 1) + argument + "<|call|>", nil, diagnosis.Respelled},
		"a name repaired":                          {exact, thought + strings.Replace(header, "functions.", "", 1) + argument + "<|call|>", nil, diagnosis.Respelled},
		"without reasoning, canonical":             {canonical, header + argument + "<|call|>", nil, diagnosis.Respelled},
		"arguments changed":                        {exact, output, func(_ *RequestContext, in *Input) { other(in) }, diagnosis.History},
		"the store has lost it":                    {exact, output, func(rc *RequestContext, _ *Input) { rc.Memory = newMemory() }, diagnosis.ReasoningLost},
		"the store has lost it, not the client": {exact, output, func(rc *RequestContext, in *Input) {
			rc.Memory = newMemory()
			in.Items[1].CallID, in.Items[2].CallID = "other", "other"
			in.Items = slices.Insert(in.Items, 1, Item{Kind: Reasoning, Text: "I look at that with great care, and at some length, so that there are many tokens of it."})
		}, diagnosis.Respelled},
		"the answer follows": {exact, output, func(_ *RequestContext, in *Input) {
			in.Items = append(in.Items, said(Answer, "answer"), said(User, "second"))
		}, diagnosis.Reasoning},
		"the answer follows calls alone, written again": {exact, header + argument + "<|call|>", func(_ *RequestContext, in *Input) {
			in.Items[1].Text = strings.ReplaceAll(argument, " ", "")
			in.Items = append(in.Items, said(Answer, "answer"), said(User, "second"))
		}, diagnosis.None},
		"the answer follows calls alone, changed": {exact, header + argument + "<|call|>", func(_ *RequestContext, in *Input) {
			other(in)
			in.Items = append(in.Items, said(Answer, "answer"), said(User, "second"))
		}, diagnosis.History},
		"the answer follows calls alone, which the store has lost": {exact, header + argument + "<|call|>", func(rc *RequestContext, in *Input) {
			rc.Memory = newMemory()
			in.Items[1].Text = strings.ReplaceAll(argument, " ", "")
			in.Items = append(in.Items, said(Answer, "answer"), said(User, "second"))
		}, diagnosis.Respelled},
		"the step left out": {exact, output, func(_ *RequestContext, in *Input) { in.Items = append(in.Items[:1:1], said(User, "second")) }, diagnosis.None},
		"an answer instead": {exact, output, func(_ *RequestContext, in *Input) {
			in.Items = append(in.Items[:1:1], said(Answer, "answer"), said(User, "second"))
		}, diagnosis.None},
		"the same prompt": {exact, output, func(_ *RequestContext, in *Input) { in.Items = in.Items[:1] }, diagnosis.None},
		"a beginning of it": {exact, output, func(_ *RequestContext, in *Input) {
			in.Items, in.Continue = []Item{in.Items[0], said(Answer, "answer")}, true
		}, diagnosis.None},
		"other instructions": {exact, output, func(_ *RequestContext, in *Input) { in.Instructions = said(Instructions, "second").Text; other(in) }, diagnosis.Instructions},
		"cut":                {exact, thought + header + argument, func(_ *RequestContext, in *Input) { other(in) }, diagnosis.None},
		"calls are not kept": {exact, thought + plainAnswer, func(_ *RequestContext, in *Input) {
			in.Items = append(in.Items[:1:1], Item{Kind: Answer, Text: "Yes."}, said(User, "second"))
		}, diagnosis.None},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rc := diagnosing()
			rc.Model = &Model{History: c.history}
			ids := 0
			rc.NewID = func(prefix string) string {
				ids++
				return fmt.Sprintf("%s%032x", prefix, ids)
			}
			in := &Input{Instructions: said(Instructions, "first").Text, Items: []Item{said(User, "question")}, Tools: functions("f"), Session: "s", Replies: Replies{Own: "one"}}
			finish := engine.FinishStop
			if name == "cut" {
				finish = engine.FinishLength
			}
			id := "call"
			turn := prepare(t, rc, in)
			_, r := play(t, turn, c.output, finish)
			r.Cached(&engine.Usage{CachedTokens: 0, Replica: "a"})
			if len(r.calls) > 0 {
				id = r.calls[0].ID
			}

			next := *in
			next.Items = []Item{in.Items[0], {Kind: Call, CallID: id, Name: "f", Text: argument}, {Kind: Result, CallID: id, Text: said(Result, "result").Text}}
			next.Replies = Replies{Own: "two", Compared: "one"}
			if c.change != nil {
				c.change(rc, &next)
			}
			d := prepare(t, rc, &next).Diagnosis()
			if d.Session.Cause != c.want || (d.Session.Lost > 0) != (c.want != diagnosis.None) || d.Reply != d.Session || d.Session.Replica != "a" {
				t.Errorf("%q: %+v", d.Session.Cause, d)
			}
		})
	}
}

// TestDiagnosisOfTwoOutputs gives one prompt two outputs, at once or one after the other: the client
// goes on with one of them, and has lost nothing of the other.
func TestDiagnosisOfTwoOutputs(t *testing.T) {
	t.Parallel()
	output := func(word string) string {
		return "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"path\": \"" + strings.Repeat(word+"/", 50) + "\"}<|call|>"
	}
	in := &Input{Items: []Item{said(User, "question")}, Tools: functions("f"), Session: "s", Replies: Replies{Own: "one"}}
	again := *in
	again.Replies.Own = "two"
	several := *in
	several.Engine.N = 2

	for name, play := range map[string]func(*RequestContext) *reading{
		"one after the other": func(rc *RequestContext) *reading {
			_, r := play(t, prepare(t, rc, in), output("first"), engine.FinishStop)
			play(t, prepare(t, rc, &again), output("second"), engine.FinishStop)
			return r
		},
		"at once": func(rc *RequestContext) *reading {
			one, two := prepare(t, rc, in), prepare(t, rc, &again)
			one.heard.Began()
			two.heard.Began()
			_, r := play(t, one, output("first"), engine.FinishStop)
			play(t, two, output("second"), engine.FinishStop)
			return r
		},
		"several choices": func(rc *RequestContext) *reading {
			turn := prepare(t, rc, &several)
			_, r := play(t, turn, output("first"), engine.FinishStop)
			play(t, turn, output("second"), engine.FinishStop)
			return r
		},
	} {
		rc := diagnosing()
		rc.Model = &Model{History: HistoryExact}
		r := play(rc)
		next := *in
		id := r.calls[0].ID
		next.Items = []Item{in.Items[0], {Kind: Call, CallID: id, Name: "f", Text: `{"path": "` + strings.Repeat("first/", 50) + `"}`}, {Kind: Result, CallID: id, Text: "1"}}
		if d := prepare(t, rc, &next).Diagnosis(); !d.Session.Known || d.Session.Cause != diagnosis.None {
			t.Errorf("%s: %+v", name, d.Session)
		}
	}
}
