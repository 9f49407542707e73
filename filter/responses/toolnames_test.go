package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func namedTools(names ...string) []tools.Tool {
	list := make([]tools.Tool, len(names))
	for i, name := range names {
		list[i] = tools.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)}
	}
	return list
}

// A server's tools reach the model under names of their own, whatever they are
// called.
func TestNumbered(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("п", 128)
	for name, c := range map[string]struct {
		listed []string
		want   map[string]string
	}{
		"none":                       {listed: []string{"search", "get weather", "python"}},
		"two":                        {listed: []string{"a.b", "a_b", "good"}, want: map[string]string{"a_b": "a_b_2"}},
		"three":                      {listed: []string{"a.b", "a/b", "a b"}, want: map[string]string{"a/b": "a_b_2", "a b": "a_b_3"}},
		"the number is taken":        {listed: []string{"a.b", "a_b", "a_b_2"}, want: map[string]string{"a_b": "a_b_3"}},
		"letters that are not ASCII": {listed: []string{"поиск", "найти"}, want: map[string]string{"найти": "______2"}},
		"reserved":                   {listed: []string{"python", "python_"}, want: map[string]string{"python_": "python__2"}},
		"long":                       {listed: []string{long, long[2:] + "ж"}, want: map[string]string{long[2:] + "ж": strings.Repeat("_", 129) + "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listed := namedTools(c.listed...)
			got := numbered(listed)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			h := &hosted{label: "docs", server: &tools.Server{}}
			if odd := h.offer(listed, turn.DefaultLimits()); odd != nil {
				t.Error(odd)
			}
			rc := apitest.NewContext()
			if _, err := rc.Prepare(t.Context(), &turn.Input{Items: []turn.Item{{Kind: turn.User, Text: "hi"}}, Tools: []harmony.Namespace{h.namespace()}}); err != nil {
				t.Errorf("the model cannot be offered them: %v", err)
			}
			for _, name := range c.listed {
				if back := h.fromModel(h.toModel(name)); back != name {
					t.Errorf("%q comes back as %q", name, back)
				}
			}
		})
	}
	names := make([]string, 100)
	for i := range names { // of 256 bytes, alike to the model
		names[i] = strings.Repeat("x", 156) + strings.Repeat(".", i) + strings.Repeat("!", 100-i)
	}
	for _, seen := range numbered(namedTools(names...)) {
		if err := new(turn.DefaultLimits()).CheckTool(harmony.Tool{Name: seen}); err != nil {
			t.Error(err)
		}
	}
}

// multiplied is a schema of 8^12 schemas, by references.
var multiplied = func() string {
	var b strings.Builder
	b.WriteString(`{"$defs":{"d12":{"type":"string"}`)
	for i := range 12 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `,"d%d":{"anyOf":[%s]}`, i, strings.Repeat(ref+",", 7)+ref)
	}
	return b.String() + `},"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}}}`
}()

// Tools that cannot be offered are left out, and an error for the operator names them.
func TestFitTools(t *testing.T) {
	t.Parallel()
	object := func(schema string) json.RawMessage { return json.RawMessage(schema) }
	limits := turn.DefaultLimits()
	for name, c := range map[string]struct {
		odd  tools.Tool
		says string
	}{
		"no name":       {tools.Tool{}, "no name"},
		"a long name":   {tools.Tool{Name: strings.Repeat("x", 257)}, "longer than 256 bytes"},
		"a deep schema": {tools.Tool{Name: "odd", InputSchema: object(strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65))}, `"odd": The parameters of tool "odd" nest more than 64`},
		"a huge schema": {tools.Tool{Name: "odd", InputSchema: object(`{"a":"` + strings.Repeat("x", limits.SchemaBytes) + `"}`)}, "larger than"},
		"no JSON":       {tools.Tool{Name: "odd", InputSchema: object(`{"maximum":1e999}`)}, `"odd": its parameters are not a valid JSON Schema`},
		"much work":     {tools.Tool{Name: "odd", InputSchema: object(multiplied)}, `"odd": its parameters take too many steps`},
		"twice":         {tools.Tool{Name: "first"}, `"first": It is listed twice`},
	} {
		fit, err := fitTools(append(namedTools("first"), c.odd, namedTools("last")[0]), limits)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if len(fit) != 2 || fit[0].InputSchema == nil || fit[1].Name != "last" {
			t.Errorf("%s: %d tools", name, len(fit))
		}
	}
	if fit, err := fitTools(namedTools("a", "b"), limits); err != nil || len(fit) != 2 {
		t.Errorf("%d tools, %v", len(fit), err)
	}
	if _, err := fitTools(namedTools(slices.Repeat([]string{"a"}, 1000)...), limits); err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "and 991 others") {
		t.Errorf("the error is %v", err)
	}
}

// Tools whose names are the same to the model are called and kept apart, in one
// response and in those that go on with it.
func TestLoopWithOddTools(t *testing.T) {
	t.Parallel()
	list := append(namedTools("a.b", "a_b", "a_b"), tools.Tool{Name: strings.Repeat("x", 300)}, namedTools("good")[0])
	call := func(name, q string) string {
		return fmt.Sprintf(`<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=docs.%s<|channel|>commentary json<|message|>{"q":%q}<|call|>`, name, q)
	}
	for _, approval := range []string{"never", "always"} {
		for _, cold := range []bool{false, true} {
			for _, stored := range []bool{true, false} {
				tool := `"tools":[{"type":"mcp","server_label":"docs","require_approval":"` + approval + `"}]`
				l := newLoop(t)
				l.results = map[string]tools.Result{"": {Tools: list}}
				answers := []string{call("a_b_2", "one"), doneText}
				if approval == "always" {
					answers = answers[:1]
				}
				got := l.play(t, `{"model":"m","input":"hi",`+tool+`}`, answers...)
				if names := got.Get("output.0.tools.#.name").Raw; names != `["a.b","a_b","good"]` {
					t.Errorf("the list is %s", names)
				}
				next := func(more string) string {
					if stored {
						return `{"model":"m","previous_response_id":"` + got.Get("id").Str + `","input":[` + more + `],` + tool + `}`
					}
					items := strings.TrimSuffix(strings.TrimPrefix(got.Get("output").Raw, "["), "]")
					return `{"model":"m","store":false,"input":[{"role":"user","content":"hi"},` + items + `,` + more + `],` + tool + `}`
				}
				item := got.Get("output.2")
				if approval == "always" {
					got = l.play(t, next(yes(item.Get("id").Str)), doneText)
					item = got.Get("output.0")
				} else if cold {
					l.api.Chains = NewChains(1 << 20)
				}
				if item.Get("name").Str != "a_b" || item.Get("output").Str != "found one" {
					t.Errorf("the call is %s", item)
				}
				if job := l.jobs[len(l.jobs)-1]; job.Tool != "a_b" || len(l.jobs) != 2 {
					t.Errorf("the jobs are %v", l.jobs)
				}
				if prompt := l.prompts[0]; !strings.Contains(prompt, "type a_b = (") || !strings.Contains(prompt, "type a_b_2 = (") || !strings.Contains(prompt, "type good = (") {
					t.Errorf("the first prompt is\n%s", prompt)
				}
				if approval == "always" && !stored {
					continue // the history of the third request would not have the first one's output
				}
				tool = docsTool
				got = l.play(t, next(`{"role":"user","content":"more"}`), call("a_b", "two"), call("a_b_2", "three"), doneText)
				if len(l.jobs) != 4 || l.jobs[2].Tool != "a.b" || l.jobs[3].Tool != "a_b" {
					t.Errorf("the jobs are %v", l.jobs)
				}
				if stored {
					l.play(t, next(`{"role":"user","content":"still more"}`), doneText)
					if last := l.prompts[len(l.prompts)-1]; !strings.Contains(last, `to=docs.a_b_2<|channel|>commentary json<|message|>{"q":"three"}`) || !strings.Contains(last, `to=docs.a_b<|channel|>commentary json<|message|>{"q":"two"}`) {
						t.Errorf("approval %s, cold %t: the last prompt is\n%s", approval, cold, last)
					}
				}
				for i, prompt := range l.prompts[1:] {
					if !strings.Contains(prompt, `to=docs.a_b_2<|channel|>commentary json<|message|>{"q":"one"}<|call|><|start|>docs.a_b_2 to=assistant<|channel|>commentary<|message|>found one<|end|>`) {
						t.Errorf("approval %s, cold %t, stored %t: prompt %d is\n%s", approval, cold, stored, i+1, prompt)
					}
				}
			}
		}
	}
}

// tool_choice names the tools as the server does.
func TestLoopChoosesOddTools(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	l.results = map[string]tools.Result{"": {Tools: namedTools("a.b", "a_b")}}
	for name, recipient := range map[string]string{"a.b": "docs.a_b", "a_b": "docs.a_b_2"} {
		request, err := l.api.decode([]byte(`{"model":"m","input":"hi",`+docsTool+`,"tool_choice":{"type":"mcp","server_label":"docs","name":"`+name+`"}}`), l.rc)
		if err != nil {
			t.Fatal(err)
		}
		r := request.newReply(api.Loop)
		var step api.Step
		for step.Call == nil {
			l.do(r, nil, step.Jobs)
			if _, step, err = r.Step(nil); err != nil {
				t.Fatal(err)
			}
		}
		if c := step.Call.Constraint; c == nil || !strings.Contains(fmt.Sprintf("%+v", c), recipient) || strings.Contains(fmt.Sprintf("%+v", c), recipient+"_") {
			t.Errorf("%s: the constraint is %+v", name, c)
		}
	}
}
