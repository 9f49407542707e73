package turn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestHeld shows what becomes of messages whose end decides whether they are calls, and that
// it is the same in chunks.
func TestHeld(t *testing.T) {
	t.Parallel()
	const (
		parallel = `<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json<|message|>`
		two      = `{"tool_uses":[{"recipient_name":"functions.f","parameters":{"a": 1}},{"recipient_name":"docs.read","parameters":{}}]}`
	)

	long := strings.Repeat("word ", (256<<10)/5+1)
	tools := append(functions("f", "g"), harmony.Namespace{Name: "docs", Tools: []harmony.Tool{{Name: "read"}}})
	all := Input{Tools: tools, Builtins: builtins()}

	for _, c := range []struct {
		name   string
		in     Input
		output string
		want   []string
	}{
		{"no recipient", all, `<|channel|>commentary json<|message|>{"a":1}<|call|>`, []string{`call .unknown: {"a":1}`}},
		{"preamble in JSON", all, `<|channel|>commentary<|message|>{"a":1}<|end|>`, []string{`preamble: {"a":1}`}},
		{"arguments behind white space", all, "<|channel|>commentary<|message|>\n {\"a\":1}<|call|>", []string{"call .unknown: \n {\"a\":1}"}},
		{"preamble behind white space", all, "<|channel|>commentary<|message|>\n Hi {<|call|>", []string{"preamble: \n Hi {"}},
		{"arguments behind too much white space", all, "<|channel|>commentary<|message|>" + strings.Repeat(" ", 256+1) + `{"a":1}<|call|>`, []string{"preamble: " + strings.Repeat(" ", 256+1) + `{"a":1}`}},
		{"arguments that are too long", all, `<|channel|>commentary<|message|>{"a":"` + long + `"}<|call|>`, []string{`preamble: {"a":"` + long + `"}`}},
		{"on final, too long", all, `<|channel|>final to=nope<|message|>` + long + `<|call|>`, []string{"answer: " + long}},
		{"several, too long", all, parallel + strings.Replace(two, `{"a": 1}`, `{"a":"`+long+`"}`, 1) + "<|call|>", []string{"call .multi_tool_use_parallel: " + strings.Replace(two, `{"a": 1}`, `{"a":"`+long+`"}`, 1)}},
		{"only white space", all, "<|channel|>commentary<|message|> \n<|end|>", []string{"preamble:  \n"}},
		{"preamble in JSON, no tools", Input{}, `<|channel|>commentary<|message|>{"a":1}<|call|>`, []string{`preamble: {"a":1}`}},
		{"word of a header", all, `<|channel|>commentary to=assistant<|message|>Hi<|end|>`, []string{"preamble: Hi"}},
		{"call of a word of a header", all, `<|channel|>commentary to=assistant<|message|>{}<|call|>`, []string{"call .assistant: {}"}},
		{"word without to=", all, `<|channel|>commentary Sure<|message|>I look.<|end|>`, []string{"preamble: Sure I look."}},
		{"call without to=", all, `<|channel|>commentary f<|message|>{}<|end|>`, []string{"call functions.f: {}"}},
		{"unknown call without to=", all, `<|channel|>commentary nope<|message|>{}<|call|>`, []string{"call .nope: {}"}},
		{"on final", all, `<|channel|>final to=nope<|message|>Hi<|return|>`, []string{"answer: Hi"}},
		{"no text", all, ` to=f<|call|>`, []string{"call functions.f: {}"}},

		{"several", all, parallel + two + "<|call|>", []string{`call functions.f: {"a": 1}`, "call docs.read: {}"}},
		{"several, no end", all, parallel + two, []string{`call functions.f: {"a": 1}`, "call docs.read: {}"}},
		{"several, respelled", all, strings.Replace(parallel, "multi", "functions.multi", 1) + strings.Replace(two, "functions.f", "F", 1) + "<|call|>", []string{`call functions.f: {"a": 1}`, "call docs.read: {}"}},
		{"several, repaired", all, parallel + strings.TrimSuffix(two, "}") + "<|call|>", []string{`call functions.f: {"a": 1}`, "call docs.read: {}"}},
		{"several, one allowed", Input{Tools: tools, OneCall: true}, parallel + two + "<|call|>", []string{`call functions.f: {"a": 1}`}},
		{"several, then another", all, parallel + two + `<|end|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>`, []string{`call functions.f: {"a": 1}`, "call docs.read: {}", "call functions.g: {}"}},
		{"several, of built-in tools", all, parallel + strings.Replace(two, "functions.f", "browser.search", 1) + "<|call|>", []string{`call browser.search: {"a": 1}`, "call docs.read: {}"}},
		{"several, one with code", all, parallel + strings.Replace(two, "functions.f", "python", 1) + "<|call|>", []string{"call .multi_tool_use_parallel: " + strings.Replace(two, "functions.f", "python", 1)}},
		{"several, one unknown", all, parallel + strings.Replace(two, "functions.f", "functions.h", 1) + "<|call|>", []string{"call .multi_tool_use_parallel: " + strings.Replace(two, "functions.f", "functions.h", 1)}},
		{"several, no object", all, parallel + strings.Replace(two, `{"a": 1}`, `"a"`, 1) + "<|call|>", []string{"call .multi_tool_use_parallel: " + strings.Replace(two, `{"a": 1}`, `"a"`, 1)}},
		{"several, none", all, parallel + `{"tool_uses":[]}<|call|>`, []string{`call .multi_tool_use_parallel: {"tool_uses":[]}`}},
		{"several within several", all, parallel + `{"tool_uses":[{"recipient_name":"multi_tool_use.parallel","parameters":` + two + `}]}<|call|>`, []string{`call .multi_tool_use_parallel: {"tool_uses":[{"recipient_name":"multi_tool_use.parallel","parameters":` + two + `}]}`}},
		{"several, on final", all, strings.Replace(parallel, "commentary", "final", 1) + two + "<|call|>", []string{`call functions.f: {"a": 1}`, "call docs.read: {}"}},
		{"several, without to=", all, "<|channel|>commentary multi_tool_use.parallel<|message|>" + two + "<|call|>", []string{`call functions.f: {"a": 1}`, "call docs.read: {}"}},
		{"several, as a text", all, "<|channel|>final to=multi_tool_use.parallel<|message|>" + two + "<|return|>", []string{"answer: " + two}},
		{"several, a name twice", all, parallel + `{"tool_uses":[{"recipient_name":"f","recipient_name":"g","parameters":{}}]}<|call|>`, []string{`call .multi_tool_use_parallel: {"tool_uses":[{"recipient_name":"f","recipient_name":"g","parameters":{}}]}`}},
		{"several, twice", all, parallel + `{"tool_uses":[],"tool_uses":[{"recipient_name":"f","parameters":{}}]}<|call|>`, []string{`call .multi_tool_use_parallel: {"tool_uses":[],"tool_uses":[{"recipient_name":"f","parameters":{}}]}`}},
		{"the client's own tool", Input{Tools: functions("f", "multi_tool_use.parallel")}, parallel + two + "<|call|>", []string{"call functions.multi_tool_use.parallel: " + two}},
		{"the client's own namespace", Input{Tools: append(functions("f"), harmony.Namespace{Name: "multi_tool_use", Tools: []harmony.Tool{{Name: "parallel"}}})}, parallel + two + "<|call|>", []string{"call multi_tool_use.parallel: " + two}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc, _ := newContext()
			c.in.Items = []Item{userHi}
			turn := prepare(t, rc, &c.in)
			tokens := harmony.AppendEncodeSpecial(nil, c.output)
			r := rand.New(rand.NewPCG(1, 2))

			for range 20 {
				if diff := cmp.Diff(c.want, readChunks(t, turn, randomChunks(r, tokens))); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

// TestReaderIsNotHeld shows that what is written to the user is passed on as it arrives.
func TestReaderIsNotHeld(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"<|channel|>final to=user<|message|>", `<|channel|>commentary to="all"<|message|>`, " to=user<|channel|>final<|message|>"} {
		rc, _ := newContext()
		text := ""
		r := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")}).NewReader(func(e Event) { text += string(e.Text) })
		if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, header+"Hello")}); err != nil || text != "Hello" {
			t.Errorf("%s: %q, %v", header, text, err)
		}
	}
}

// TestHeldIsCut shows messages that the engine ends because of their length before it is
// known what they are.
func TestHeldIsCut(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		`<|channel|>commentary json<|message|>{"a":1`: `preamble: {"a":1.`,
		`<|channel|>commentary to=multi_tool_use.parallel json<|message|>{"tool_uses":[{"recipient_name":"functions.f","parameters":{"a":1}},{"recipient_name":"f`: `call 0 call_1 .multi_tool_use_parallel: {"tool_uses":[{"recipient_name":"functions.f","parameters":{"a":1}},{"recipient_name":"f.`,
	} {
		rc, _ := newContext()
		lines, r := play(t, prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")}), output, engine.FinishLength)
		if diff := cmp.Diff([]string{want}, lines); diff != "" || r.Finish() != FinishLength {
			t.Errorf("%s: finish %s\n%s", output, r.Finish(), diff)
		}
	}
}

// TestHeldIsCounted shows that the tokens of calls that are made in one are counted once.
func TestHeldIsCounted(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	const text = `{"tool_uses":[{"recipient_name":"functions.f","parameters":{}},{"recipient_name":"functions.f","parameters":{}}]}`
	_, r := play(t, prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")}), "<|channel|>commentary to=multi_tool_use.parallel<|message|>"+text+"<|call|>", engine.FinishStop)
	if got, want := r.Counts().Call, len(harmony.AppendEncode(nil, text)); got != want || r.Calls() != 2 || r.Finish() != FinishCalls {
		t.Errorf("%d tokens of calls, want %d; %d calls, finish %s", got, want, r.Calls(), r.Finish())
	}
}

// Several calls in one end at the first that the choice of tools excludes: nothing of it and of those after
// it is emitted.
func TestParallelExcluded(t *testing.T) {
	t.Parallel()
	const output = `<|channel|>commentary to=multi_tool_use.parallel json<|message|>{"tool_uses":[` +
		`{"recipient_name":"functions.f","parameters":{"a":1}},{"recipient_name":"functions.g","parameters":{"b":2}},` +
		`{"recipient_name":"functions.f","parameters":{"c":3}}]}<|call|>`
	rc, _ := newContext()
	in := Input{Items: []Item{userHi}, Tools: functions("f", "g"), Choice: Choice{Allowed: []ToolName{{Namespace: FunctionsNamespace, Name: "f"}}}}
	var lines []string
	r := prepare(t, rc, &in).NewReader(func(e Event) {
		if e.Call != nil {
			lines = append(lines, e.Call.Name+string(e.Text))
		}
	})
	_, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, output), Finish: engine.FinishStop})
	if err == nil || err.Code != "constraint_not_kept" || r.Finish() != item.FinishError {
		t.Errorf("%v, ended by %s", err, r.Finish())
	}
	if want := []string{"f", `f{"a":1}`, "f"}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}
