package turn

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var renderer = harmony.NewRenderer()

// clock is a clock that tests set.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func newContext() (*RequestContext, *clock) {
	ids := 0
	c := &clock{time.Date(2026, 11, 21, 23, 59, 0, 0, time.UTC)}
	return &RequestContext{
		Env: &Env{
			Renderer: renderer,
			Now:      c.now,
			NewID: func(prefix string) string {
				if prefix == "" { // what no client sees
					return "0"
				}
				ids++
				return prefix + strconv.Itoa(ids)
			},
			Memory: newMemory(),
			Limits: DefaultLimits(),
		},
		Model: &Model{},
	}, c
}

func functions(names ...string) []harmony.Namespace {
	ns := harmony.Namespace{Name: FunctionsNamespace}
	for _, name := range names {
		ns.Tools = append(ns.Tools, harmony.Tool{Name: name})
	}
	return []harmony.Namespace{ns}
}

func prepare(t testing.TB, rc *RequestContext, in *Input) *Turn {
	t.Helper()
	turn, err := Prepare(context.Background(), rc, in)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// promptText returns the prompt as text, without the system message.
func promptText(t testing.TB, rc *RequestContext, in *Input) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, prepare(t, rc, in).Engine.Prompt)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<|end|>")
	return rest
}

// reading is a reader with the calls that it has reported.
type reading struct {
	*Reader
	calls []*CalledTool
}

// play reads a model's output as readOutput does, and does what it leaves to keep.
func play(t testing.TB, turn *Turn, text string, finish engine.Finish) ([]string, *reading) {
	t.Helper()
	lines, r := readOutput(t, turn, text, finish)
	if k := r.Kept(); k != nil {
		if _, err := k.Do(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return lines, r
}

// readOutput reads a model's output and returns the events as lines, with the
// deltas of a part joined.
func readOutput(t testing.TB, turn *Turn, text string, finish engine.Finish) ([]string, *reading) {
	t.Helper()
	var lines []string
	r := &reading{}
	r.Reader = turn.NewReader(func(e Event) {
		switch e.Step {
		case Start:
			line := e.Kind.String() + ": "
			if e.Call != nil {
				r.calls = append(r.calls, e.Call)
				what := ""
				if e.Call.IsCode() {
					what = ", code"
				} else if e.Call.Builtin {
					what = ", built in"
				}
				line = fmt.Sprintf("call %s %s %s.%s%s: ", strconv.Itoa(e.Call.Index), e.Call.ID, e.Call.Namespace, e.Call.Name, what)
			}
			lines = append(lines, line)

		case Delta:
			lines[len(lines)-1] += string(e.Text)
		case End:
			lines[len(lines)-1] += "."
		}
	})

	if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, text), Finish: finish}); err != nil {
		t.Fatal(err)
	}
	return lines, r
}

var userHi = Item{Kind: User, Text: "Hi"}

func TestReader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		in     Input
		output string
		length bool
		want   []string
		finish Finish
	}{
		{"reasoning and answer", Input{}, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", false, []string{"reasoning: a.", "answer: b."}, FinishStop},
		{"preamble and call", Input{Tools: functions("f")}, "<|channel|>commentary<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>", false, []string{"preamble: a.", "call 0 call_1 functions.f: {}."}, FinishCalls},
		{"two calls of one tool", Input{Tools: functions("f")}, " to=functions.f<|channel|>commentary json<|message|>1<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>2<|call|>", false, []string{"call 0 call_1 functions.f: 1.", "call 1 call_2 functions.f: 2."}, FinishCalls},
		{"one call only", Input{Tools: functions("f"), OneCall: true}, " to=functions.f<|channel|>commentary json<|message|>1<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>2<|call|>", false, []string{"call 0 call_1 functions.f: 1."}, FinishCalls},
		{"call on analysis", Input{Tools: functions("f")}, "<|channel|>analysis to=functions.f<|message|>1<|call|>", false, []string{"call 0 call_1 functions.f: 1."}, FinishCalls},
		{"call without namespace", Input{Tools: functions("f")}, "<|channel|>commentary to=f <|constrain|>json<|message|>1<|call|>", false, []string{"call 0 call_1 functions.f: 1."}, FinishCalls},
		{"call in other letters", Input{Tools: functions("get_weather", "get_weather_at")}, " to=functions.getWeather<|channel|>commentary json<|message|>1<|call|>", false, []string{"call 0 call_1 functions.get_weather: 1."}, FinishCalls},
		{"call with a glued channel", Input{Tools: functions("get_weather", "get")}, " to=functions.get_weathercommentary<|message|>1<|call|>", false, []string{"call 0 call_1 functions.get_weather: 1."}, FinishCalls},
		{"mapped name", Input{Tools: functions("a.b c")}, " to=functions.a_b_c<|channel|>commentary json<|message|>1<|call|>", false, []string{"call 0 call_1 functions.a.b c: 1."}, FinishCalls},
		{"reserved name", Input{Tools: functions("python")}, " to=functions.python_<|channel|>commentary json<|message|>1<|call|>", false, []string{"call 0 call_1 functions.python: 1."}, FinishCalls},
		{"reserved name as trained", Input{Tools: functions("python")}, "<|channel|>analysis to=python code<|message|>1<|call|>", false, []string{"call 0 call_1 functions.python: 1."}, FinishCalls},
		{"namespace", Input{Tools: []harmony.Namespace{{Name: "mcp__x", Tools: []harmony.Tool{{Name: "echo"}}}}}, " to=mcp__x.echo<|channel|>commentary json<|message|>1<|call|>", false, []string{"call 0 call_1 mcp__x.echo: 1."}, FinishCalls},
		{"namespace missed", Input{Tools: []harmony.Namespace{{Name: "mcp__x", Tools: []harmony.Tool{{Name: "echo"}}}}}, " to=functions.echo<|channel|>commentary json<|message|>1<|call|>", false, []string{"call 0 call_1 mcp__x.echo: 1."}, FinishCalls},
		{"unknown tool", Input{Tools: functions("f")}, " to=container.exec<|channel|>commentary json<|message|>1<|call|>", false, []string{"call 0 call_1 .container_exec: 1."}, FinishCalls},
		{"unknown tool of a name that a tool has", Input{Tools: functions("search", "exec")}, " to=browser.search<|channel|>commentary json<|message|>1<|end|><|start|>assistant to=container.exec<|channel|>commentary json<|message|>2<|call|>", false, []string{"call 0 call_1 .browser_search: 1.", "call 1 call_2 .container_exec: 2."}, FinishCalls},
		{"unknown tool on final", Input{Tools: functions("f")}, " to=somebody<|channel|>final<|message|>a<|return|>", false, []string{"answer: a."}, FinishStop},
		{"recipient that is none", Input{Tools: functions("f")}, " to=all<|channel|>commentary<|message|>a<|end|>", false, []string{"preamble: a."}, FinishStop},
		{"no arguments", Input{Tools: functions("f")}, " to=functions.f<|channel|>commentary json<|message|><|call|>", false, []string{"call 0 call_1 functions.f: {}."}, FinishCalls},
		{"call that is cut", Input{Tools: functions("f")}, " to=functions.f<|channel|>commentary json<|message|>{\"a\":", true, []string{"call 0 call_1 functions.f: {\"a\":."}, FinishLength},
		{"call that is cut at once", Input{Tools: functions("f")}, " to=functions.f<|channel|>commentary json<|message|>", true, []string{"call 0 call_1 functions.f: ."}, FinishLength},
		{"call withheld beside an answer", Input{Tools: functions("f"), NoCalls: true}, " to=functions.f<|channel|>commentary json<|message|>1<|end|><|start|>assistant<|channel|>final<|message|>a<|return|>", false, []string{"answer: a."}, FinishStop},
		{"call withheld that was all", Input{}, " to=functions.f<|channel|>commentary json<|message|>1<|call|>", false, []string{"answer: 1."}, FinishStop},
		{"withheld with a stop string", Input{Stop: []string{"1}"}}, " to=functions.f<|channel|>commentary json<|message|>{\"a\":1}<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\":2}<|call|>", false, []string{"answer: {\"a\":."}, FinishStop},
		{"withheld with half a stop string", Input{Stop: []string{"1x"}}, " to=functions.f<|channel|>commentary json<|message|>1<|call|>", false, []string{"answer: 1."}, FinishStop},
		{"withheld before an answer that a stop string empties", Input{Stop: []string{"b"}}, " to=functions.f<|channel|>commentary json<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>bc<|return|>", false, nil, FinishStop},
		{"no channel", Input{}, "<|message|>a<|return|>", false, []string{"answer: a."}, FinishStop},
		{"nothing", Input{}, "<|return|>", false, nil, FinishStop},
		{"empty messages", Input{}, "<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|><|return|>", false, nil, FinishStop},
		{"stop string", Input{Stop: []string{"cd"}}, "<|channel|>analysis<|message|>cd<|end|><|start|>assistant<|channel|>final<|message|>abcdef<|return|>", false, []string{"reasoning: cd.", "answer: ab."}, FinishStop},
		{"stop string kept", Input{Stop: []string{"cd"}, KeepStop: true}, "<|channel|>final<|message|>abcdef<|return|>", false, []string{"answer: abcd."}, FinishStop},
		{"half a stop string", Input{Stop: []string{"bcx"}}, "<|channel|>final<|message|>abc<|return|>", false, []string{"answer: abc."}, FinishStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc, _ := newContext()
			c.in.Items = []Item{userHi}
			finish := engine.FinishStop
			if c.length {
				finish = engine.FinishLength
			}

			lines, r := play(t, prepare(t, rc, &c.in), c.output, finish)
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Error(diff)
			}

			if r.Finish() != c.finish {
				t.Errorf("finish %q, want %q", r.Finish(), c.finish)
			}
		})
	}
}

// TestCorrected shows that no call is withheld from a reply that corrects calls.
func TestCorrected(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]Input{
		"no tools":         {},
		"no calls":         {Tools: functions("f"), NoCalls: true},
		"no builtin calls": {Builtins: []harmony.Namespace{harmony.BrowserNamespace()}, NoCalls: true},
	} {
		for recipient, want := range map[string]string{"functions.f": "f", "browser.search": "browser_search", "docs.a": "docs_a"} {
			rc, _ := newContext()
			in.Items = []Item{userHi}
			var called []CalledTool
			r := prepare(t, rc, &in).NewReader(func(e Event) {
				if e.Kind != Call {
					t.Errorf("%s, %s: a %s", name, recipient, e.Kind)
				} else if e.Step == End {
					called = append(called, *e.Call)
				}
			})

			r.Corrected()
			tokens := harmony.AppendEncodeSpecial(nil, " to="+recipient+"<|channel|>commentary json<|message|>{}<|call|>")
			if _, err := r.Push(&engine.Chunk{Tokens: tokens, Finish: engine.FinishStop}); err != nil {
				t.Fatal(err)
			}

			if len(called) != 1 || called[0].Name != want || called[0].Namespace != "" || r.Finish() != FinishCalls {
				t.Errorf("%s, %s: the calls are %v", name, recipient, called)
			}
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")})
	const output = "<|channel|>analysis<|message|>one two three<|end|><|start|>assistant<|channel|>commentary<|message|>four five<|end|>" +
		"<|start|>assistant to=functions.F<|channel|>commentary json<|message|>six<|call|>"
	_, r := play(t, turn, output, engine.FinishStop)
	var got Summary
	r.AddTo(&got)
	want := Summary{Counts: Counts{Output: len(harmony.AppendEncodeSpecial(nil, output)), Reasoning: 3, Text: 2, Call: 1}, Calls: 1, Repairs: map[string]int{"recipient": 1, "invalid_arguments": 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCountsWithoutMarkers counts the text of messages with malformed headers.
func TestCountsWithoutMarkers(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	turn := prepare(t, rc, &Input{Items: []Item{userHi}})
	_, r := play(t, turn, "<|channel|>analysis one two<|end|><|start|>assistant<|channel|>final three four five<|return|>", engine.FinishStop)
	if got := r.Counts(); got.Reasoning != 2 || got.Text != 3 {
		t.Errorf("%+v", got)
	}
}

func TestEarly(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Stop: []string{"b"}})
	r := turn.NewReader(func(Event) {})
	tokens := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>a b c d")
	taken, err := r.Push(&engine.Chunk{Tokens: tokens})
	if err != nil || taken != 5 || !r.Early() || r.Finish() != FinishStop || r.Matched() == nil || r.Matched().Text != "b" {
		t.Errorf("taken %d, early %v, finish %q, matched %v, %v", taken, r.Early(), r.Finish(), r.Matched(), err)
	}
	if taken, _ := r.Push(&engine.Chunk{Tokens: tokens, Finish: engine.FinishStop}); taken != 0 {
		t.Errorf("%d tokens taken after the end", taken)
	}
}

func TestStrict(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	rc.Model.OnMalformed = MalformedFail
	turn := prepare(t, rc, &Input{Items: []Item{userHi}})

	for _, c := range []struct {
		output string
		finish engine.Finish
		ok     bool
	}{
		{"<|channel|>final<|message|>a<|return|>", engine.FinishStop, true},
		{"<|channel|>final<|message|>a<|end|>stray", engine.FinishStop, false},
		{"<|channel|>final", engine.FinishStop, false},
		{"<|channel|>final", engine.FinishLength, true},
		{"<|channel|>final<|message|>a<|channel|>final<|message|>b<|return|>", engine.FinishStop, false},
		{"<|channel|>analysis<|message|>a<|constrain|>b<|end|>", engine.FinishStop, false},
		{"<|channel|>final<|message|>a<|endoftext|>", engine.FinishStop, false},
		{"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", engine.FinishStop, true},
	} {
		var shown strings.Builder
		r := turn.NewReader(func(e Event) { shown.Write(e.Text) })
		_, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, c.output), Finish: c.finish})
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.output, err)
		}

		if strings.Contains(shown.String(), "<|") {
			t.Errorf("%q: %q is shown", c.output, shown.String())
		}

		var got Summary
		if r.AddTo(&got); (got.Repairs["failed"] == 1) == c.ok {
			t.Errorf("%q: counted %v", c.output, got.Repairs)
		}

		if err != nil && (err.Status != 502 || err.Code != "malformed_output") {
			t.Errorf("%q: %v", c.output, err)
		}
	}
}

// TestStopTokenInContent shows that a client's stop token ends the choice where the
// format does not allow the token.
func TestStopTokenInContent(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{MalformedRepair, MalformedFail} {
		rc, _ := newContext()
		rc.Model.OnMalformed = setting
		turn := prepare(t, rc, &Input{Items: []Item{userHi}, Engine: engine.Request{StopTokens: []harmony.Token{harmony.TokenConstrain}}})
		lines, r := play(t, turn, "<|channel|>final<|message|>a<|constrain|>b", engine.FinishNone)
		if diff := cmp.Diff([]string{"answer: a."}, lines); diff != "" || r.Finish() != FinishStop || r.Matched() == nil {
			t.Errorf("%s: finish %q, matched %v\n%s", setting, r.Finish(), r.Matched(), diff)
		}
	}
}

// TestForeignNamespaceCounted shows that a call with a tool's name in another
// namespace is counted as unknown.
func TestForeignNamespaceCounted(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	_, r := play(t, prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("search")}), " to=browser.search<|channel|>commentary json<|message|>1<|call|>", engine.FinishStop)
	var got Summary
	if r.AddTo(&got); got.Repairs["unknown_tool"] != 1 {
		t.Errorf("counted %v", got.Repairs)
	}
}

// TestReasoningKeptOnce shows that the reasoning of many calls is kept once, and
// found by the id of each of them.
func TestReasoningKeptOnce(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	memory := newMemory()
	rc.Memory = memory
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")})
	before := memory.bytes()
	reasoning := strings.Repeat("why ", 1<<13)
	const call, calls = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|end|>", 100
	play(t, turn, "<|channel|>analysis<|message|>"+reasoning+"<|end|>"+strings.Repeat(call, calls), engine.FinishStop)
	if bytes := memory.bytes() - before; bytes > 2*len(reasoning) {
		t.Errorf("%d bytes kept for %d bytes of reasoning", bytes, len(reasoning))
	}
	for _, id := range []string{"call_1", "call_2", "call_100"} {
		items := []Item{userHi, {Kind: Call, CallID: id, Name: "f", Text: "1"}, {Kind: Result, CallID: id, Text: "2"}}
		if !strings.Contains(promptText(t, rc, &Input{Items: items}), reasoning) {
			t.Errorf("%s does not find its reasoning", id)
		}
	}
}

// TestEngineID shows that two requests with one client's id are two at the
// engine.
func TestEngineID(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	rc.RequestID = "same-id"
	nonce := 0
	rc.NewID = func(string) string { nonce++; return strconv.Itoa(nonce) }
	form := regexp.MustCompile(`^[0-9a-f]{8}-1-chatcmpl-same-id$`)
	var ids [2]string
	for i := range ids {
		id := prepare(t, rc, &Input{Items: []Item{userHi}, Engine: engine.Request{ID: engine.CallID{Request: rc.ID("chatcmpl-")}}}).Engine.ID.String()
		if !form.MatchString(id) {
			t.Errorf("id %q", id)
		}
		ids[i] = id
	}
	if ids[0] == ids[1] {
		t.Errorf("twice %q", ids[0])
	}
}

// TestKeptReasoning plays a tool turn of a client that does not send reasoning
// back.
func TestKeptReasoning(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	first := Input{Items: []Item{userHi}, Tools: functions("f")}
	play(t, prepare(t, rc, &first), "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary<|message|>pre<|end|>"+
		"<|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|call|>", engine.FinishStop)

	call := Item{Kind: Call, CallID: "call_1", Name: "f", Text: "1"}
	result := Item{Kind: Result, CallID: "call_1", Text: "2"}
	const rendered = "<|start|>assistant<|channel|>commentary<|message|>pre<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|call|>" +
		"<|start|>functions.f to=assistant<|channel|>commentary<|message|>2<|end|>"
	const user, assistant = "<|start|>user<|message|>Hi<|end|>", "<|start|>assistant"
	reasoned := func(text string) string {
		return "<|start|>assistant<|channel|>analysis<|message|>" + text + "<|end|>"
	}

	preamble := Item{Kind: Preamble, Text: "pre"}
	for _, c := range []struct {
		name   string
		tenant string
		items  []Item
		want   string
	}{
		{"kept", "", []Item{userHi, preamble, call, result}, user + reasoned("why") + rendered + assistant},
		{"the client's own goes before", "", []Item{userHi, {Kind: Reasoning, Text: "own"}, preamble, call, result}, user + reasoned("own") + rendered + assistant},
		{"another tenant's", "x", []Item{userHi, preamble, call, result}, user + rendered + assistant},
		{"kept right after an answer", "", []Item{userHi, {Kind: Answer, Text: "a"}, preamble, call, result}, user + "<|start|>assistant<|channel|>final<|message|>a<|end|>" + reasoned("why") + rendered + assistant},
		{"dropped after an answer", "", []Item{userHi, preamble, call, result, {Kind: Answer, Text: "a"}, userHi}, user + rendered + "<|start|>assistant<|channel|>final<|message|>a<|end|>" + user + assistant},
	} {
		t.Run(c.name, func(t *testing.T) {
			rc := *rc
			rc.Tenant = c.tenant
			if diff := cmp.Diff(c.want, promptText(t, &rc, &Input{Items: c.items})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeveloperMessages(t *testing.T) {
	t.Parallel()
	const tools = "# Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n} // namespace functions"
	instructions := func(text string) Item { return Item{Kind: Instructions, Text: text} }

	for _, c := range []struct {
		name string
		in   Input
		want string
	}{
		{"each its own", Input{Items: []Item{instructions("a"), instructions("b"), userHi}}, "<|start|>developer<|message|># Instructions\n\na<|end|><|start|>developer<|message|># Instructions\n\nb<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant"},
		{"tools in the first", Input{Items: []Item{instructions("a"), userHi}, Tools: functions("f")}, "<|start|>developer<|message|># Instructions\n\na\n\n" + tools + "<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant"},
		{"tools alone", Input{Items: []Item{userHi, instructions("a")}, Tools: functions("f")}, "<|start|>developer<|message|>" + tools + "<|end|><|start|>user<|message|>Hi<|end|><|start|>developer<|message|># Instructions\n\na<|end|><|start|>assistant"},
		{"tools not offered", Input{Items: []Item{userHi}, Tools: functions("f"), NoCalls: true}, "<|start|>user<|message|>Hi<|end|><|start|>assistant"},
		{"empty instructions", Input{Items: []Item{instructions(""), userHi}}, "<|start|>user<|message|>Hi<|end|><|start|>assistant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc, _ := newContext()
			if diff := cmp.Diff(c.want, promptText(t, rc, &c.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	rc, c := newContext()
	conversation := []Item{{Kind: Instructions, Text: "a"}, userHi}
	goneOn := []Item{{Kind: Instructions, Text: "a"}, userHi, {Kind: Answer, Text: "b"}, userHi}
	other := []Item{{Kind: Instructions, Text: "b"}, userHi}
	date := func(items ...Item) string {
		text, err := harmony.AppendDecode(nil, prepare(t, rc, &Input{Items: items}).Engine.Prompt)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "Current date: ")
		return rest[:min(10, len(rest))]
	}

	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("date %q, want %q", got, want)
		}
	}

	expect(date(conversation...), "2026-11-21")
	c.Time = c.Add(2 * time.Minute)
	expect(date(goneOn...), "2026-11-21")
	expect(date(other...), "2026-11-22")
	c.Time = c.Add(3 * 24 * time.Hour)
	expect(date(conversation...), "2026-11-25")
	rc.Model.Date = "2025-06-28"
	expect(date(conversation...), "2025-06-28")
	rc.Model.Date = DateNone
	expect(date(conversation...), "")
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	for id, want := range map[string]string{
		"1f0e-2d.A:b_":           "chatcmpl-1f0e-2d.A:b_",
		"":                       "chatcmpl-1",
		"a\r\nb":                 "chatcmpl-1",
		strings.Repeat("a", 129): "chatcmpl-1",
	} {
		rc.RequestID = id
		rc.NewID = func(prefix string) string { return prefix + "1" }
		if got := rc.ID("chatcmpl-"); got != want {
			t.Errorf("ID of %q = %q, want %q", id, got, want)
		}
	}
}
