package turn

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// headerForms are the headers of calls that gpt-oss writes, the last one being the library's.
var headerForms = []string{
	"<|start|>assistant<|channel|>commentary to=%s <|constrain|>json<|message|>",
	"<|start|>assistant to=%s<|channel|>commentary <|constrain|>json<|message|>",
	"<|start|>assistant<|channel|>commentary to=%s json<|message|>",
	"<|start|>assistant to=%s<|channel|>commentary json<|message|>",
}

func exactContext() (*RequestContext, *clock) {
	rc, c := newContext()
	rc.Model = &Model{History: HistoryExact}
	return rc, c
}

// readTokens plays the output of a model, from what follows <|start|>assistant, and keeps what is
// to be kept.
func readTokens(t testing.TB, turn *Turn, tokens []harmony.Token, finish engine.Finish) *reading {
	t.Helper()
	r := &reading{}
	r.Reader = turn.NewReader(func(e Event) {
		if e.Step == Start && e.Call != nil {
			r.calls = append(r.calls, e.Call)
		}
	})
	if _, err := r.Push(&engine.Chunk{Tokens: tokens, Finish: finish}); err != nil {
		t.Fatal(err)
	}
	if k := r.Kept(); k != nil {
		if _, err := k.Do(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// followed returns the prompt of a turn and what its model has written, as the engine has it: without
// the token that ended it.
func (t *Turn) followed(output []harmony.Token) []harmony.Token {
	return slices.Concat(t.Engine.Prompt, output[:len(output)-1])
}

// TestHistoryAsWritten shows what of a step that a client sends back leaves it as the model wrote it,
// and what makes it another.
func TestHistoryAsWritten(t *testing.T) {
	t.Parallel()
	const output = "<|channel|>analysis<|message|>First.<|end|>" +
		"<|start|>assistant<|channel|>commentary<|message|>I look. <|end|>" +
		"<|start|>assistant<|channel|>analysis<|message|>Then two.\n<|end|>" +
		"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": [1.0, \"é\"], \"b\": {}}<|end|>" +
		"<|start|>assistant to=functions.g<|channel|>commentary <|constrain|>json<|message|>{ }<|call|>"

	reasoning := func(text string) Item { return Item{Kind: Reasoning, Text: text} }
	preamble := func(text string) Item { return Item{Kind: Preamble, Text: text} }
	first := Item{Kind: Call, CallID: "call_1", Name: "f", Text: `{"a": [1.0, "é"], "b": {}}`}
	second := Item{Kind: Call, CallID: "call_2", Name: "g", Text: "{ }"}
	with := func(call Item, change func(*Item)) Item {
		change(&call)
		return call
	}
	outputs := []Item{{Kind: Result, CallID: "call_1", Text: "1"}, {Kind: Result, CallID: "call_2", Text: "2"}}

	for name, c := range map[string]struct {
		step []Item
		same bool
	}{
		"as it was":                  {[]Item{reasoning("First."), preamble("I look. "), reasoning("Then two.\n"), first, second}, true},
		"reasoning joined":           {[]Item{reasoning("First.\n\nThen two.\n"), preamble("I look."), first, second}, true},
		"reasoning joined, cut":      {[]Item{reasoning("First.\n\nThen two."), preamble("I look."), first, second}, true},
		"reasoning left out":         {[]Item{preamble("I look."), first, second}, true},
		"reasoning empty":            {[]Item{reasoning(""), preamble("I look."), first, second}, true},
		"reasoning in part":          {[]Item{reasoning("First."), preamble("I look."), first, second}, false},
		"reasoning changed":          {[]Item{reasoning("First.\n\nThen three."), preamble("I look."), first, second}, false},
		"reasoning in another order": {[]Item{reasoning("Then two."), preamble("I look."), reasoning("First."), first, second}, false},
		"preamble left out":          {[]Item{first, second}, false},
		"preamble changed":           {[]Item{preamble("I looked."), first, second}, false},
		"preamble twice":             {[]Item{preamble("I look."), preamble("I look."), first, second}, false},
		"calls in another order":     {[]Item{preamble("I look."), second, first}, true},
		"a call left out":            {[]Item{preamble("I look."), first}, false},
		"a call more":                {[]Item{preamble("I look."), first, second, {Kind: Call, CallID: "call_3", Name: "g", Text: "{}"}, {Kind: Result, CallID: "call_3"}}, false},
		"ids swapped": {[]Item{
			preamble("I look."), with(first, func(i *Item) { i.CallID = "call_2" }), with(second, func(i *Item) { i.CallID = "call_1" }),
		}, false},
		"another tool":             {[]Item{preamble("I look."), with(first, func(i *Item) { i.Name = "g" }), second}, false},
		"another namespace":        {[]Item{preamble("I look."), with(first, func(i *Item) { i.Namespace = "mcp" }), second}, false},
		"plain functions by name":  {[]Item{preamble("I look."), with(first, func(i *Item) { i.Namespace = FunctionsNamespace }), second}, true},
		"a built-in tool":          {[]Item{preamble("I look."), with(first, func(i *Item) { i.Namespace, i.Builtin = "functions", true }), second}, false},
		"arguments written again":  {[]Item{preamble("I look."), with(first, func(i *Item) { i.Text = `{"b":{},"a":[1,"\u00e9"]}` }), with(second, func(i *Item) { i.Text = "{}" })}, true},
		"a member changed":         {[]Item{preamble("I look."), with(first, func(i *Item) { i.Text = `{"b":{},"a":[1,"e"]}` }), second}, false},
		"a member more":            {[]Item{preamble("I look."), with(first, func(i *Item) { i.Text = `{"b":{},"a":[1,"é"],"c":1}` }), second}, false},
		"a member left out":        {[]Item{preamble("I look."), with(first, func(i *Item) { i.Text = `{"a":[1,"é"]}` }), second}, false},
		"no arguments":             {[]Item{preamble("I look."), first, with(second, func(i *Item) { i.Text = "" })}, true},
		"results between":          {[]Item{preamble("I look."), first, outputs[0], second}, true},
		"reasoning between":        {[]Item{preamble("I look."), first, outputs[0], reasoning("First.\n\nThen two."), second}, true},
		"other reasoning between":  {[]Item{preamble("I look."), first, outputs[0], reasoning("More."), second}, false},
		"a user between":           {[]Item{preamble("I look."), first, outputs[0], userHi, second}, false},
		"instructions between":     {[]Item{preamble("I look."), first, outputs[0], {Kind: Instructions, Text: "i"}, second}, false},
		"something after the call": {[]Item{preamble("I look."), first, second, preamble("More.")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rc, _ := exactContext()
			in := Input{Items: []Item{userHi}, Tools: functions("f", "g")}
			turn := prepare(t, rc, &in)
			tokens := harmony.AppendEncodeSpecial(nil, output)
			readTokens(t, turn, tokens, engine.FinishStop)

			in.Items = append([]Item{userHi}, c.step...)
			for _, result := range outputs {
				if !slices.ContainsFunc(c.step, func(i Item) bool { return i.Kind == Result && i.CallID == result.CallID }) &&
					slices.ContainsFunc(c.step, func(i Item) bool { return i.Kind == Call && i.CallID == result.CallID }) {
					in.Items = append(in.Items, result)
				}
			}

			next := prepare(t, rc, &in).Engine.Prompt
			want := turn.followed(tokens)
			if !c.same {
				canonical := *rc
				canonical.Model = &Model{}
				want = prepare(t, &canonical, &in).Engine.Prompt
			}
			if got := next[:min(len(next), len(want))]; !slices.Equal(got, want) {
				t.Errorf("the prompt is\n%s\nwant\n%s", spell(t, next), spell(t, want))
			}
			if c.same && !strings.HasSuffix(spell(t, next), "<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>1<|end|>"+
				"<|start|>functions.g to=assistant<|channel|>commentary<|message|>2<|end|><|start|>assistant") {
				t.Errorf("the results follow otherwise: %s", spell(t, next))
			}
		})
	}
}

// TestCallsInAnotherOrder shows that each result stays that of its call where the calls are put back into
// the model's order: the model knows no ids, so that of several calls of a tool the first result is of the
// first call. Where that is not possible, the step is not what the model wrote.
func TestCallsInAnotherOrder(t *testing.T) {
	t.Parallel()
	rc, _ := exactContext()
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	form := fmt.Sprintf(headerForms[0], "functions.f")
	turn := prepare(t, rc, &in)
	output := harmony.AppendEncodeSpecial(nil, strings.TrimPrefix(form, "<|start|>assistant")+`{"a":1}<|call|>`+form+`{"a":2}<|call|>`)
	readTokens(t, turn, output, engine.FinishStop)

	call := func(n string) Item { return Item{Kind: Call, CallID: "call_" + n, Name: "f", Text: `{"a":` + n + `}`} }
	result := func(n string) Item { return Item{Kind: Result, CallID: "call_" + n, Text: "of " + n} }
	for _, items := range [][]Item{
		{userHi, call("1"), call("2"), result("1"), result("2")},
		{userHi, call("1"), call("2"), result("2"), result("1")},
		{userHi, call("2"), call("1"), result("2"), result("1")},
		{userHi, call("2"), call("1"), result("1"), result("2")},
		{userHi, call("2"), result("2"), call("1"), result("1")},
		{userHi, call("2"), call("1"), result("2"), {Kind: Tools, Tools: &JoinedTools{}}, result("1")},
	} {
		in.Items = items
		prompt := prepare(t, rc, &in).Engine.Prompt
		got := spell(t, prompt)
		if !slices.Equal(prompt[:len(prompt)-len(startOfReply)][:len(turn.followed(output))], turn.followed(output)) ||
			strings.Index(got, "of 1") > strings.Index(got, "of 2") {
			t.Errorf("not as the model wrote it, or results that are not in its order: %s", got)
		}
	}

	in.Items = []Item{userHi, call("2"), call("1"), result("2"), {Kind: User, Summary: true, Text: "s"}, result("1")}
	if got := promptText(t, rc, &in); strings.Index(got, `{"a":2}`) > strings.Index(got, `{"a":1}`) {
		t.Errorf("a result that comes later is that of the other call: %s", got)
	}
}

// TestWrittenNamedOften shows that a text of the store is read once, and renewed once, however often a
// request names it. It counts all that is allocated, so that no other test runs beside it.
func TestWrittenNamedOften(t *testing.T) {
	rc, _ := exactContext()
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	const words = 10_000
	output := "<|channel|>commentary to=functions.f json<|message|>" + `{"a":"` + strings.Repeat("word ", words) + `"}<|call|>`
	readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil, output), engine.FinishStop)

	answered := false
	size := func(steps int) int {
		items := append(make([]Item, 0, 1+2*steps), userHi)
		for range steps {
			items = append(items, Item{Kind: Call, CallID: "call_1", Name: "f", Text: "{}"}, Item{Kind: Result, CallID: "call_1"})
			if answered {
				items = append(items, Item{Kind: Answer, Text: "a"}, userHi)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		stored, err := kept.Read(t.Context(), rc, nil, items)
		runtime.ReadMemStats(&after)
		if err != nil || len(stored.Choices) != 1 {
			t.Errorf("%d choices, %v", len(stored.Choices), err)
		}
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	for range 2 {
		if one, many := size(1), size(500); many > one+500*words/4 {
			t.Errorf("500 steps make %d bytes, one makes %d", many, one)
		}
		answered = true
	}

	// What is compared is what the model wrote, though the client names it by a few bytes.
	rc.Work = work.New(t.Context(), 20*words)
	if size(500); rc.Work.Affords(words) {
		t.Error("what is compared takes no work")
	}
}

// TestWrittenOfPrefixOnce shows that a prefix has a choice once whose step it did not have whole at first.
func TestWrittenOfPrefixOnce(t *testing.T) {
	t.Parallel()
	rc, clock := exactContext()
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	form := fmt.Sprintf(headerForms[0], "functions.f")
	output := strings.TrimPrefix(form, "<|start|>assistant") + "{}<|call|>" + form + "{}<|call|>"
	readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil, output), engine.FinishStop)

	step := func(id string) []Item {
		return []Item{{Kind: Call, CallID: id, Name: "f", Text: "{}"}, {Kind: Result, CallID: id, Text: "r"}}
	}
	p, err := Extend(t.Context(), rc, nil, append([]Item{userHi}, step("call_1")...))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = Extend(t.Context(), rc, p, step("call_2")); err != nil {
		t.Fatal(err)
	}

	rc.KeptTTL = time.Hour
	clock.Time = clock.Add(40 * time.Minute)
	if due := prepare(t, rc, &Input{Before: p, Tools: in.Tools}).plan.Due.Choices; len(due) != 1 {
		t.Errorf("%d choices are due: %v", len(due), due)
	}
}

// TestNotAsWritten lists output that is not shown to the model again as it wrote it.
func TestNotAsWritten(t *testing.T) {
	t.Parallel()
	const thought, half = "<|channel|>analysis<|message|>Hm<|end|>", "½"
	const call = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"

	for name, c := range map[string]struct {
		in     Input
		output string
		finish engine.Finish
		kept   bool
	}{
		"well formed":               {Input{}, thought + call + "{}<|call|>", engine.FinishStop, true},
		"without its end":           {Input{}, thought + call + "{}", engine.FinishStop, true},
		"another end":               {Input{}, thought + call + "{}<|return|>", engine.FinishStop, true},
		"one call of two":           {Input{OneCall: true}, thought + call + "{}<|call|>" + call + "{}<|call|>", engine.FinishStop, true},
		"no tools":                  {Input{NoCalls: true}, thought + call + "{}<|call|>", engine.FinishStop, false},
		"truncated":                 {Input{}, thought + call + "{}<|call|>", engine.FinishLength, false},
		"no call":                   {Input{}, thought + "<|start|>assistant<|channel|>final<|message|>a<|return|>", engine.FinishStop, false},
		"an answer too":             {Input{}, thought + call + "{}<|end|><|start|>assistant<|channel|>final<|message|>a<|return|>", engine.FinishStop, false},
		"a preamble at the end":     {Input{}, thought + call + "{}<|end|><|start|>assistant<|channel|>commentary<|message|>a<|end|>", engine.FinishStop, false},
		"a header that is repaired": {Input{}, "<|channel|>analysis<|message|>Hm" + call + "{}<|call|>", engine.FinishStop, false},
		"a tool's other name":       {Input{}, thought + strings.Replace(call, "functions.f", "functions.F", 1) + "{}<|call|>", engine.FinishStop, false},
		"no namespace":              {Input{}, thought + strings.Replace(call, "functions.f", "f", 1) + "{}<|call|>", engine.FinishStop, false},
		"an unknown tool":           {Input{}, thought + strings.Replace(call, "functions.f", "functions.no", 1) + "{}<|call|>", engine.FinishStop, false},
		"another channel":           {Input{}, thought + strings.Replace(call, "commentary", "analysis", 1) + "{}<|call|>", engine.FinishStop, false},
		"another content type":      {Input{}, thought + strings.Replace(call, "json", "object", 1) + "{}<|call|>", engine.FinishStop, false},
		"arguments repaired":        {Input{}, thought + call + "{\"a\":1<|call|>", engine.FinishStop, false},
		"no arguments":              {Input{}, thought + call + "<|call|>", engine.FinishStop, false},
		"a call by its end":         {Input{}, thought + "<|start|>assistant<|channel|>commentary<|message|>{\"a\":1}<|call|>", engine.FinishStop, false},
		"several in one": {
			Input{},
			thought + "<|start|>assistant<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json<|message|>" +
				`{"tool_uses":[{"recipient_name":"functions.f","parameters":{}},{"recipient_name":"functions.f","parameters":{}}]}<|call|>`,
			engine.FinishStop, false,
		},
		"a client's stop token": {Input{Engine: engine.Request{StopTokens: []harmony.Token{harmony.TokenEnd}}}, thought + call + "{}<|call|>", engine.FinishStop, false},
		"half a character":      {Input{}, strings.Replace(thought, "Hm", half, 1) + call + "{}<|call|>", engine.FinishStop, false},
	} {
		rc, _ := exactContext()
		c.in.Items, c.in.Tools = []Item{userHi}, functions("f")
		turn := prepare(t, rc, &c.in)
		// The letter stands for a token that is a part of a character.
		tokens := harmony.AppendEncodeSpecial(nil, c.output)
		if i := slices.Index(tokens, harmony.AppendEncode(nil, half)[0]); i >= 0 {
			tokens[i] = harmony.AppendEncode(nil, "𓀀")[0]
		}
		readTokens(t, turn, tokens, c.finish)

		text := rc.Memory.(*memory).texts[[2]string{"", "written:call_1"}]
		if kept := hasTokens(text); kept != c.kept {
			t.Errorf("%s: kept %q", name, text)
		}
	}
}

// hasTokens reports whether a text of the store has tokens after the ids of the calls.
func hasTokens(text string) bool {
	_, encoded, _ := strings.Cut(text, ".")
	body, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil || len(body) == 0 {
		return false
	}
	calls, rest := body[0], body[1:]
	for range calls {
		rest = rest[1+rest[0]:]
	}
	return len(rest) > 0
}

// TestWrittenWithinAReply shows that the next turn of a reply begins with what the model wrote in
// this one, without a store.
func TestWrittenWithinAReply(t *testing.T) {
	t.Parallel()
	for i, form := range headerForms {
		rc, _ := exactContext()
		rc.Memory = nil
		rc.Work = work.New(t.Context(), 1_000)
		// That of the endpoint ends with the request's decoding.
		decoding, decoded := context.WithCancel(t.Context())
		first, apiErr := Prepare(decoding, rc, &Input{Items: []Item{userHi}, Tools: functions("f")})
		if apiErr != nil {
			t.Fatal(apiErr)
		}
		decoded()
		output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>why<|end|>"+fmt.Sprintf(form, "functions.f")+`{"a": 1}<|call|>`)
		r := readTokens(t, first, output, engine.FinishStop)
		if r.Kept() != nil {
			t.Error("there is a job for no store")
		}

		items := []Item{{Kind: Reasoning, Text: "why"}, {Kind: Call, CallID: "call_1", Name: "f", Text: `{"a":1}`}, {Kind: Result, CallID: "call_1", Text: "2", Hosted: true}}
		next, err := first.Continue(t.Context(), items, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := first.followed(output)
		if got := next.Engine.Prompt; !slices.Equal(got[:min(len(want), len(got))], want) {
			t.Errorf("form %d: the prompt is\n%s\nwant\n%s", i, spell(t, got), spell(t, want))
		}
	}
}

// TestWrittenBegun shows that a step is kept whole whose first message the request has begun.
func TestWrittenBegun(t *testing.T) {
	t.Parallel()
	rc, _ := exactContext()
	in := Input{Items: []Item{userHi, {Kind: Preamble, Text: "I lo"}}, Continue: true, Tools: functions("f")}
	turn := prepare(t, rc, &in)
	output := harmony.AppendEncodeSpecial(nil, "ok.<|end|>"+fmt.Sprintf(headerForms[0], "functions.f")+"{}<|call|>")
	readTokens(t, turn, output, engine.FinishStop)

	in.Continue = false
	in.Items = []Item{userHi, {Kind: Preamble, Text: "I look."}, {Kind: Call, CallID: "call_1", Name: "f", Text: "{}"}, {Kind: Result, CallID: "call_1"}}
	want := turn.followed(output)
	if got := prepare(t, rc, &in).Engine.Prompt; !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("the prompt is\n%s\nwant\n%s", spell(t, got), spell(t, want))
	}
}

// TestWrittenInserted shows that tokens by which reasoning was ended are part of what the engine has.
func TestWrittenInserted(t *testing.T) {
	t.Parallel()
	rc, _ := exactContext()
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	turn := prepare(t, rc, &in)
	r := turn.NewReader(func(Event) {})
	var output []harmony.Token
	for i, text := range []string{"<|channel|>analysis<|message|>Hm", "<|end|><|start|>assistant", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"} {
		tokens := harmony.AppendEncodeSpecial(nil, text)
		output = append(output, tokens...)
		if _, err := r.Push(&engine.Chunk{Tokens: tokens, Inserted: i == 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Kept().Do(context.Background()); err != nil {
		t.Fatal(err)
	}

	in.Items = toolTurn("call_1")
	in.Items[1].Text = "{}"
	want := turn.followed(output)
	if got := prepare(t, rc, &in).Engine.Prompt; !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("the prompt is\n%s\nwant\n%s", spell(t, got), spell(t, want))
	}
}

// TestWrittenCode shows that calls of code tools are compared as text, and stand on the channel of
// reasoning.
func TestWrittenCode(t *testing.T) {
	t.Parallel()
	for text, same := range map[string]bool{"1 + 1": true, "1+1": false} {
		rc, _ := exactContext()
		in := Input{Items: []Item{userHi}, Builtins: builtins()}
		turn := prepare(t, rc, &in)
		output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis to=python <|constrain|>code<|message|>1 + 1<|call|>")
		readTokens(t, turn, output, engine.FinishStop)

		in.Items = []Item{userHi, {Kind: Call, CallID: "call_1", Namespace: "python", Builtin: true, Text: text}, {Kind: Result, CallID: "call_1"}}
		want := turn.followed(output)
		if got := prepare(t, rc, &in).Engine.Prompt; slices.Equal(got[:min(len(got), len(want))], want) != same {
			t.Errorf("%q: the prompt is\n%s", text, spell(t, got))
		}
	}
}

// TestWrittenTexts shows what of the store is not taken.
func TestWrittenTexts(t *testing.T) {
	t.Parallel()
	rc, _ := exactContext()
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	turn := prepare(t, rc, &in)
	output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm<|end|>"+fmt.Sprintf(headerForms[0], "functions.f")+"{}<|call|>")
	readTokens(t, turn, output, engine.FinishStop)
	texts := rc.Memory.(*memory).texts
	kept := texts[[2]string{"", "written:call_1"}]
	head, encoded, _ := strings.Cut(kept, ".")
	body, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}

	in.Items = toolTurn("call_1")
	in.Items[1].Text = "{}"
	exact := turn.followed(output)
	canonicalModel := *rc
	canonicalModel.Model = &Model{}
	canonical := prepare(t, &canonicalModel, &in).Engine.Prompt

	text := func(body []byte) string { return head + "." + base64.RawStdEncoding.EncodeToString(body) }
	marker := bytes.LastIndex(body, []byte{0xc3, 0x9a, 0x0c}) // <|constrain|>
	if marker < 0 {
		t.Fatalf("% x", body)
	}
	for name, damaged := range map[string]string{
		"none":              "",
		"another version":   "2" + kept[1:],
		"no time":           "1." + encoded,
		"no body":           head,
		"no base64":         kept + "!",
		"cut":               text(body[:len(body)-1]),
		"a control token":   text(slices.Concat(body[:len(body)-3], []byte{0xc6, 0x9a, 0x0c}, body[len(body)-3:])),
		"a token too large": text(slices.Concat(body[:len(body)-3], []byte{0xff, 0xff, 0x7f}, body[len(body)-3:])),
		"another's calls":   text(bytes.Replace(body, []byte("call_1"), []byte("call_2"), 1)),
		"no calls":          text(body[1:]),
		"many calls":        text(slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, body[1:])),
		"a user's message":  text(slices.Concat(body[:8], harmonyBytes("<|start|>user<|message|>x<|end|>"))),
		"an answer":         text(slices.Concat(body[:8], harmonyBytes("<|start|>assistant<|channel|>final<|message|>x<|end|>"))),
		"no tokens":         text(body[:8]),
		"a call twice":      text(slices.Concat([]byte{2}, body[1:8], body[1:])),
		"a name too long":   text(slices.Concat([]byte{1, 0xff, 0x7f}, body[2:])),
	} {
		texts[[2]string{"", "written:call_1"}] = damaged
		if got := prepare(t, rc, &in).Engine.Prompt; !slices.Equal(got, canonical) {
			t.Errorf("%s: the prompt is\n%s", name, spell(t, got))
		}
	}

	texts[[2]string{"", "written:call_1"}] = kept
	if got := prepare(t, rc, &in).Engine.Prompt; !slices.Equal(got[:len(exact)], exact) {
		t.Errorf("the prompt is\n%s", spell(t, got))
	}

	other := *rc
	other.Tenant = "other"
	if got := prepare(t, &other, &in).Engine.Prompt; strings.Contains(spell(t, got), "Hm") || slices.Equal(got[:len(exact)], exact) {
		t.Error("another tenant gets what was written")
	}

	full, taken := *rc, 0
	full.Reserve = func(n int) *apierror.Error {
		if n > 0 {
			return apierror.New(503, "overloaded", "", "There is no room.")
		}
		return nil
	}
	if got := prepare(t, &full, &in).Engine.Prompt; !slices.Equal(got, canonical) {
		t.Errorf("without memory, the prompt is\n%s", spell(t, got))
	}
	full.Reserve = func(n int) *apierror.Error {
		taken += n
		return nil
	}
	if got := prepare(t, &full, &in).Engine.Prompt; !slices.Equal(got[:len(exact)], exact) || taken != 0 {
		t.Errorf("%d bytes stay taken, the prompt is\n%s", taken, spell(t, got))
	}

	spent := *rc
	spent.Work = work.New(t.Context(), 10)
	if got := prepare(t, &spent, &in).Engine.Prompt; !slices.Equal(got, canonical) {
		t.Errorf("without work left, the prompt is\n%s", spell(t, got))
	}
}

func harmonyBytes(text string) []byte {
	var body []byte
	for _, token := range harmony.AppendEncodeSpecial(nil, text) {
		body = binary.AppendUvarint(body, uint64(token))
	}
	return body
}

// TestWrittenRenewed shows that what a long turn has kept does not expire one by one, and that
// only what is due is written again.
func TestWrittenRenewed(t *testing.T) {
	t.Parallel()
	rc, clock := exactContext()
	rc.KeptTTL = time.Hour
	m := rc.Memory.(*memory)
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	const two = "{}<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>"
	written := map[string]time.Time{}

	for i := range 20 {
		turn := prepare(t, rc, &in)
		before := maps.Clone(m.texts)
		calls := 2*i + 1
		readTokens(t, turn, harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm<|end|>"+fmt.Sprintf(headerForms[0], "functions.f")+two+"{}<|call|>"), engine.FinishStop)
		for k, text := range m.texts {
			if strings.HasPrefix(k[1], "written:") && before[k] != text {
				written[k[1]] = clock.Time
			}
		}

		for _, id := range []int{calls, calls + 1} {
			in.Items = append(in.Items, Item{Kind: Call, CallID: "call_" + strconv.Itoa(id), Name: "f", Text: "{}"})
		}
		for _, id := range []int{calls, calls + 1} {
			in.Items = append(in.Items, Item{Kind: Result, CallID: "call_" + strconv.Itoa(id), Text: "r"})
		}

		clock.Time = clock.Add(10 * time.Minute)
		for name, at := range written {
			if clock.Sub(at) >= time.Hour {
				t.Fatalf("step %d: %s has expired", i, name)
			}
		}
	}
	if len(written) != 20 || m.writes > 20+12 {
		t.Errorf("%d choices in %d writes", len(written), m.writes)
	}
}

// TestWrittenRenewedOfPrefix shows that this holds for the items of a prefix too.
func TestWrittenRenewedOfPrefix(t *testing.T) {
	t.Parallel()
	rc, clock := exactContext()
	rc.KeptTTL = time.Hour
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm<|end|>"+fmt.Sprintf(headerForms[0], "functions.f")+"{}<|call|>")
	readTokens(t, prepare(t, rc, &in), output, engine.FinishStop)
	before := rc.Memory.(*memory).texts[[2]string{"", "written:call_1"}]

	items := toolTurn("call_1")
	items[1].Text = "{}"
	// The request's own work has ended.
	ended, end := context.WithCancel(t.Context())
	end()
	rc.Work = work.New(ended, 1_000)
	p, err := Extend(t.Context(), rc, nil, items)
	if err != nil {
		t.Fatal(err)
	}
	rc.Work = nil
	forgetful, env := *rc, *rc.Env
	env.Memory, forgetful.Env = nil, &env
	if got := promptText(t, &forgetful, &Input{Before: p, Tools: functions("f")}); !strings.Contains(got, "<|constrain|>") {
		t.Fatalf("the prefix has not what the model wrote: %s", got)
	}
	clock.Time = clock.Add(40 * time.Minute)
	readTokens(t, prepare(t, rc, &Input{Before: p, Tools: functions("f")}), output, engine.FinishStop)
	if rc.Memory.(*memory).texts[[2]string{"", "written:call_1"}] == before {
		t.Error("it is not renewed")
	}

	// Nor is it renewed again at once, also if the prefix was extended.
	for range 2 {
		turn := prepare(t, rc, &Input{Before: p, Tools: functions("f")})
		if len(turn.plan.Due.Choices) > 0 {
			t.Errorf("%v is due again", turn.plan.Due.Choices)
		}
		if p, err = Extend(t.Context(), rc, p, []Item{userHi}); err != nil {
			t.Fatal(err)
		}
	}
	clock.Time = clock.Add(40 * time.Minute)
	if turn := prepare(t, rc, &Input{Before: p, Tools: functions("f")}); len(turn.plan.Due.Choices) != 1 {
		t.Errorf("%v is due later", turn.plan.Due.Choices)
	}

	// What precedes an answer is not needed any more.
	if p, err = Extend(t.Context(), rc, p, []Item{{Kind: Answer, Text: "a"}, userHi}); err != nil {
		t.Fatal(err)
	}
	if turn := prepare(t, rc, &Input{Before: p, Tools: functions("f")}); len(turn.plan.Due.Choices) != 0 {
		t.Errorf("%v is due after an answer", turn.plan.Due.Choices)
	}
}

// TestWrittenSideBySide shows that replicas of this version and of those before, or with another
// setting, read the reasoning that each has kept.
func TestWrittenSideBySide(t *testing.T) {
	t.Parallel()
	const output = "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|end|>" +
		"<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>"
	rc, _ := exactContext()
	before := *rc
	before.Model = &Model{}
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	next := in
	call := func(id string) Item { return Item{Kind: Call, CallID: id, Name: "f", Text: "{}"} }
	for _, id := range []string{"1", "2"} {
		next.Items = append(next.Items, call("call_"+id))
	}
	for _, id := range []string{"1", "2"} {
		next.Items = append(next.Items, Item{Kind: Result, CallID: "call_" + id, Text: "r"})
	}

	readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil, output), engine.FinishStop)
	want := "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>why<|end|><|start|>assistant to=functions.f<|channel|>commentary json"
	if got := promptText(t, &before, &next); !strings.Contains(got, want) {
		t.Errorf("one before reads\n%s", got)
	}

	// What one before has kept is the reasoning alone.
	m := rc.Memory.(*memory)
	delete(m.texts, [2]string{"", "written:call_1"})
	if got := promptText(t, rc, &next); !strings.Contains(got, want) {
		t.Errorf("this version reads\n%s", got)
	}

	// A client that has left out the first call finds it by the other one.
	next.Items = []Item{userHi, call("call_2"), {Kind: Result, CallID: "call_2", Text: "r"}}
	if got := promptText(t, rc, &next); !strings.Contains(got, want) {
		t.Errorf("of the second call this version reads\n%s", got)
	}
}

// TestOtherHistory shows that a prefix that was made for a model with another setting is not used where
// it would show.
func TestOtherHistory(t *testing.T) {
	t.Parallel()
	rc, _ := exactContext()
	canonical := *rc
	canonical.Model = &Model{}
	tools := functions("f")
	output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm<|end|>"+fmt.Sprintf(headerForms[0], "functions.f")+"1<|call|>")
	readTokens(t, prepare(t, rc, &Input{Items: []Item{userHi}, Tools: tools}), output, engine.FinishStop)
	items := append(toolTurn("call_1"), userHi)
	answered := append(slices.Clone(items), Item{Kind: Answer, Text: "a"}, userHi)

	for _, made := range []*RequestContext{rc, &canonical} {
		for _, used := range []*RequestContext{rc, &canonical} {
			p, err := Extend(t.Context(), made, nil, items)
			if err != nil {
				t.Fatal(err)
			}
			samePrompts(t, used, Input{Tools: tools}, items, p)
			samePrompts(t, used, Input{Tools: tools}, answered, p)
			if _, err := Extend(t.Context(), used, p, []Item{userHi}); (err != nil) != (made != used) {
				t.Errorf("extended: %v", err)
			}

			if p, err = Extend(t.Context(), made, p, []Item{{Kind: Answer, Text: "a"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := Extend(t.Context(), used, p, []Item{userHi}); err != nil {
				t.Errorf("after an answer: %v", err)
			}
		}
	}
}

// TestWrittenAllocates shows that collecting tokens costs no allocation a token.
func TestWrittenAllocates(t *testing.T) {
	rc, _ := exactContext()
	r := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")}).NewReader(func(Event) {})
	if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Now ")}); err != nil {
		t.Fatal(err)
	}
	words := engine.Chunk{Tokens: harmony.AppendEncode(nil, " and then there were none, nev er")}
	if n := testing.AllocsPerRun(1000, func() { _, _ = r.Push(&words) }); n > 0 {
		t.Errorf("%v allocations for %d tokens", n, len(words.Tokens))
	}
}

// startOfReply is what prompts end with.
var startOfReply = harmony.AppendEncodeSpecial(nil, "<|start|>assistant")
