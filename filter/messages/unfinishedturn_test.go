package messages

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// numbered are servers of which each call has a result of its own.
type numbered struct{ *service }

func (s numbered) Do(ctx context.Context, j tools.Job) tools.Result {
	if j.Tool == "" {
		return s.service.Do(ctx, j)
	}
	result := tools.Result{Text: "hosted result " + digits.FindString(j.Arguments) + ".", Answered: true}
	if strings.Contains(j.Arguments, "fail") {
		result = tools.Result{Error: result.Text, Answered: true}
	}
	return result
}

var digits = regexp.MustCompile("[0-9]+")

// TestUnfinishedTurnIsWhole plays turns in which the model calls tools of the filter (h) and of the
// client (c): each prompt has all steps before it, with a store and without, whether the client gets
// the thinking or not. With a store it begins with the prompt before and its output.
func TestUnfinishedTurnIsWhole(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct{ fields, tool, call string }{
		"search": {``, `{"type":"web_search_20250305","name":"web_search"},`, `<|channel|>analysis to=browser.search code<|message|>{"query": "cats %d"}`},
		"code":   {``, `{"type":"code_execution_20250825","name":"code_execution"},`, `<|channel|>analysis to=python code<|message|>print(%d)`},
		"failed": {``, `{"type":"code_execution_20250825","name":"code_execution"},`, `<|channel|>analysis to=python code<|message|>fail(%d)`},
		"MCP":    {docsServer, ``, ` to=docs.look_up<|channel|>commentary json<|message|>{"q": "docs %d"}`},
	} {
		for _, way := range []struct {
			name, fields string
			store        bool
		}{{"thinking", shows, true}, {"no thinking", `,"thinking":{"type":"disabled"}`, true}, {"no store", shows, false}} {
			for _, order := range []string{"hc", "chc", "h-hc", "h-c", "c-h", "hhc-hchc"} {
				t.Run(name+"/"+way.name+"/"+order, func(t *testing.T) {
					t.Parallel()
					p := &turnPlayer{service: newService(t), store: way.store}
					p.servers = numbered{p.service}
					p.rc.Model = &turn.Model{History: turn.HistoryExact}
					if !way.store {
						p.rc.Memory = nil
					}
					p.fields = way.fields + kind.fields + `,"tools":[` + kind.tool + `{"name":"local","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}}}]`
					p.turn(t, order, kind.call)
				})
			}
		}
	}
}

// turnPlayer is a client, and the filter that it talks to.
type turnPlayer struct {
	*service
	store    bool
	fields   string
	messages []string
	// All steps that a prompt must have: calls and results.
	steps []string
	// The prompt before, and its output.
	before string
}

func (p *turnPlayer) turn(t *testing.T, order, call string) {
	t.Helper()
	p.messages = []string{`{"role":"user","content":"hi"}`}
	var outputs []string
	// What the outputs add to the prompts, by model call.
	var added [][]string
	output, clients := "", 0
	var steps []string
	for i, who := range order {
		if who == '-' {
			output += "<|end|><|start|>assistant"
			continue
		}
		if output == "" {
			output = fmt.Sprintf("<|channel|>analysis<|message|>Thought %d.<|end|><|start|>assistant", i)
		}
		n := i + 1
		if who == 'c' {
			clients++
			output += fmt.Sprintf(`<|channel|>commentary to=functions.local <|constrain|>json<|message|>{"n":%d}`, n)
			steps = append(steps, fmt.Sprintf(`{"n":%d}`, n), fmt.Sprintf("local result %d.", n))
		} else {
			output += fmt.Sprintf(call, n)
			_, text, _ := strings.Cut(fmt.Sprintf(call, n), "<|message|>")
			steps = append(steps, text, fmt.Sprintf("hosted result %d.", n))
		}
		if i+1 < len(order) && order[i+1] == '-' {
			continue
		}

		outputs, added = append(outputs, output+"<|call|>"), append(added, steps)
		output, steps = "", nil
		if clients > 0 {
			p.send(t, outputs, added)
			outputs, added, clients = nil, nil, 0
		}
	}
	p.send(t, append(outputs, doneText), append(added, nil))
}

// send makes a request, checks its prompts, and takes the message.
func (p *turnPlayer) send(t *testing.T, outputs []string, added [][]string) {
	t.Helper()
	m := p.play(t, `{"model":"m","max_tokens":4096,"messages":[`+strings.Join(p.messages, ",")+"]"+p.fields+"}", outputs...)
	for i, prompt := range p.prompts {
		for _, step := range p.steps {
			// Without a store arguments have the spaces of JSON.
			if strings.Count(prompt, step) != 1 && (p.store || strings.Count(prompt, strings.ReplaceAll(step, `: `, `:`)) != 1) {
				t.Fatalf("the prompt does not have %q once:\n%s", step, prompt)
			}
		}
		if p.store && !strings.HasPrefix(prompt, p.before) {
			t.Fatalf("the prompt does not begin with the one before and its output:\n%s\n%s", p.before, prompt)
		}
		p.before = prompt + outputs[i]
		p.steps = append(p.steps, added[i]...)
	}

	var results []string
	for _, b := range m.Get("content").Array() {
		if b.Get("type").Str == "tool_use" {
			results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"local result %d."}`, b.Get("id").Str, b.Get("input.n").Int()))
		}
	}
	p.messages = append(p.messages, `{"role":"assistant","content":`+m.Get("content").Raw+"}")
	if len(results) > 0 {
		slices.Reverse(results) // clients answer in any order
		p.messages = append(p.messages, `{"role":"user","content":[`+strings.Join(results, ",")+"]}")
	}
}
