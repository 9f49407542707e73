package chat

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestUnknownTools shows replies in which the model calls unknown tools. If the
// setting says so, the model is told, and the client sees the next turn only.
func TestUnknownTools(t *testing.T) {
	t.Parallel()
	const (
		unknown = `<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant to=functions.nothing<|channel|>commentary json<|message|>{"a":1}<|call|>`
		known   = ` to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>`
		both    = unknown + `<|start|>assistant` + known
		answer  = `<|channel|>final<|message|>Sunny.<|return|>`
	)
	for name, c := range map[string]struct {
		setting, fields string
		outputs         []string
		finish, content string
		calls           string // names
	}{
		"the model is told":      {turn.UnknownToModel, "", []string{unknown, answer}, "stop", "Sunny.", ""},
		"twice":                  {turn.UnknownToModel, "", []string{unknown, unknown, answer}, "stop", "Sunny.", ""},
		"then a known tool":      {turn.UnknownToModel, "", []string{unknown, known}, "tool_calls", "", "get_weather"},
		"up to the limit":        {turn.UnknownToModel, "", []string{unknown, unknown, unknown}, "tool_calls", "", "nothing"},
		"until there is no room": {turn.UnknownToModel, `,"max_tokens":10`, []string{unknown}, "length", "", ""},
		"beside a call of the client, and no room": {turn.UnknownToModel, `,"max_tokens":10`, []string{both}, "tool_calls", "", "get_weather"},
		"the client is told":                       {turn.UnknownToClient, "", []string{unknown}, "tool_calls", "", "nothing"},
		"with two choices":                         {turn.UnknownToModel, `,"n":2`, nil, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stream := range []bool{false, true} {
				rc := apitest.NewContext()
				rc.Model.UnknownTools, rc.Limits.Turns = c.setting, 3
				fields := weatherTool + c.fields
				if stream {
					fields += `,"stream":true,"stream_options":{"include_usage":true}`
				}
				request := decodeWith(t, rc, ask(fields))
				if c.outputs == nil {
					if request.corrects {
						t.Error("one of several choices would have another turn")
					}
					continue
				}
				outputs := make([]apitest.Output, len(c.outputs))
				for i, text := range c.outputs {
					outputs[i] = apitest.Said(text)
				}
				out, prompts, err := apitest.PlayLoop(t, request.NewReply(api.Loop), outputs, nil)
				if err != nil {
					t.Fatal(err)
				}
				reply := string(out)
				content, finish, calls := outcome(t, reply, stream)
				if finish != c.finish || content != c.content || calls != c.calls {
					t.Errorf("finish %q, content %q, calls %q; want %q, %q, %q\n%s", finish, content, calls, c.finish, c.content, c.calls, reply)
				}
				if len(prompts) > 1 && !strings.HasSuffix(prompts[1], `Let me see.<|end|><|start|>assistant to=functions.nothing<|channel|>commentary json<|message|>{"a":1}<|call|><|start|>functions.nothing to=assistant<|channel|>commentary<|message|>There is no tool "nothing". Call only tools that are listed, by their full names.<|end|><|start|>assistant`) {
					t.Errorf("the second prompt is\n%s", prompts[1])
				}
				if c.calls != "nothing" && strings.Contains(reply, "nothing") {
					t.Errorf("the client is told of the call:\n%s", reply)
				}
			}
		})
	}
}

// outcome returns the end of a reply.
func outcome(t testing.TB, reply string, stream bool) (content, finish, calls string) {
	t.Helper()
	if !stream {
		choice := gjson.Get(reply, "choices.0")
		return choice.Get("message.content").Str, choice.Get("finish_reason").Str, choice.Get("message.tool_calls.0.function.name").Str
	}
	var contents, finishes, names strings.Builder
	for _, event := range apitest.Events(t, reply) {
		choice := event.Get("choices.0")
		contents.WriteString(choice.Get("delta.content").Str)
		finishes.WriteString(choice.Get("finish_reason").Str)
		names.WriteString(choice.Get("delta.tool_calls.0.function.name").Str)
	}
	return contents.String(), finishes.String(), names.String()
}

// TestUsageOfTurns shows that the usage of a reply has the prompts of all its turns, and
// what the engine had of each of them in its cache.
func TestUsageOfTurns(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Model.UnknownTools, rc.Limits.Turns = turn.UnknownToModel, 3
	reply := decodeWith(t, rc, ask(weatherTool)).NewReply(api.Loop)
	prompts := 0
	for i, text := range []string{
		` to=functions.nothing<|channel|>commentary json<|message|>{}<|call|>`,
		`<|channel|>final<|message|>Sunny.<|return|>`,
	} {
		_, step, err := reply.Step(nil)
		if err != nil || step.Call == nil {
			t.Fatalf("turn %d has no model call: %v", i, err)
		}
		prompts += len(step.Call.Prompt)
		chunk := engine.Chunk{Tokens: apitest.Tokens(text), Finish: engine.FinishStop, Usage: &engine.Usage{CachedTokens: 16 * (i + 1)}}
		if _, err := reply.Push(nil, &chunk); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := reply.Step(nil); err != nil {
		t.Fatal(err)
	}
	object, err := reply.End(nil)
	usage := gjson.GetBytes(object, "usage")
	if got := usage.Get("prompt_tokens_details.cached_tokens").Int(); err != nil || got != 48 || usage.Get("prompt_tokens").Int() != int64(prompts) {
		t.Errorf("%v: %s, want %d tokens, 48 of them cached", err, usage, prompts)
	}
	if s := reply.Summary(); s.Prompt != prompts || s.Cached != 48 {
		t.Errorf("summary %+v", s)
	}
}
