package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

func namedTools(names ...string) []tools.Tool {
	list := make([]tools.Tool, len(names))
	for i, name := range names {
		list[i] = tools.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)}
	}
	return list
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
					l.api.Chains = read.NewChains(1 << 20)
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
		r := newReply(request, api.Loop)
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

// Calls that the model makes in one are calls of their own: of tools that the filter runs,
// within the request's bound, and of the client's.
func TestLoopWithCallsInOne(t *testing.T) {
	t.Parallel()
	const both = `<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json<|message|>{"tool_uses":[{"recipient_name":"docs.search","parameters":{"q":"one"}},{"recipient_name":"%s","parameters":{"q":"two"}}]}<|call|>`
	tool := `"tools":[{"type":"function","name":"mine","parameters":{"type":"object"}},{"type":"mcp","server_label":"docs","require_approval":"never"}]`
	for _, c := range []struct {
		second, members string
		jobs            int
		want            string // types of the output's items
	}{
		{"docs.read", "", 2, `["mcp_list_tools","mcp_call","mcp_call","message"]`},
		{"docs.read", `,"max_tool_calls":1`, 1, `["mcp_list_tools","mcp_call","mcp_call","message"]`},
		{"docs.read", `,"parallel_tool_calls":false`, 1, `["mcp_list_tools","mcp_call","message"]`},
		{"functions.mine", "", 1, `["mcp_list_tools","mcp_call","function_call"]`},
	} {
		l := newLoop(t)
		l.results = map[string]tools.Result{"": {Tools: namedTools("search", "read")}}
		answers := []string{fmt.Sprintf(both, c.second), doneText}
		if c.second == "functions.mine" {
			answers = answers[:1]
		}
		got := l.play(t, `{"model":"m","input":"hi",`+tool+c.members+`}`, answers...)
		calls := 0
		for _, job := range l.jobs {
			if job.Tool != "" {
				calls++
			}
		}
		if types := got.Get("output.#.type").Raw; types != c.want || calls != c.jobs {
			t.Errorf("%s%s: the output is %s, %d jobs", c.second, c.members, types, calls)
		}
	}
}
