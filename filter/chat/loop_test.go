package chat

import (
	"context"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A model that calls a tool which there is not is told so, where that is wanted;
// the client sees the turn that follows.
func TestUnknownTools(t *testing.T) {
	t.Parallel()
	const (
		unknown = `<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant to=functions.nothing<|channel|>commentary json<|message|>{"a":1}<|call|>`
		known   = ` to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>`
		answer  = `<|channel|>final<|message|>Sunny.<|return|>`
	)
	for name, c := range map[string]struct {
		setting, fields string
		outputs         []string
		finish, content string
		calls           string // names
	}{
		"the model is told":         {turn.UnknownToModel, "", []string{unknown, answer}, "stop", "Sunny.", ""},
		"twice":                     {turn.UnknownToModel, "", []string{unknown, unknown, answer}, "stop", "Sunny.", ""},
		"then a tool that there is": {turn.UnknownToModel, "", []string{unknown, known}, "tool_calls", "", "get_weather"},
		"up to the limit":           {turn.UnknownToModel, "", []string{unknown, unknown, unknown}, "tool_calls", "", "nothing"},
		"until there is no room":    {turn.UnknownToModel, `,"max_tokens":10`, []string{unknown}, "length", "", ""},
		"the client is told":        {turn.UnknownToClient, "", []string{unknown}, "tool_calls", "", "nothing"},
		"with two choices":          {turn.UnknownToModel, `,"n":2`, nil, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stream := range []bool{false, true} {
				scope := newScope()
				scope.Model.UnknownTools, scope.Limits.Turns = c.setting, 3
				fields := weatherTool + c.fields
				if stream {
					fields += `,"stream":true,"stream_options":{"include_usage":true}`
				}
				call, err := Decode(context.Background(), []byte(ask(fields)), scope)
				if err != nil {
					t.Fatal(err)
				}
				if c.outputs == nil {
					if call.corrects {
						t.Error("one of several choices would have another turn")
					}
					continue
				}
				r := call.NewReply()
				var out []byte
				var prompts []string
				for i := 0; ; i++ {
					request, err := r.Next()
					if err != nil {
						t.Fatal(err)
					}
					if request == nil {
						if i != len(c.outputs) {
							t.Fatalf("%d turns, want %d", i, len(c.outputs))
						}
						break
					}
					prompt, _ := harmony.AppendDecode(nil, request.Prompt)
					prompts = append(prompts, string(prompt))
					for _, token := range tokens(c.outputs[i]) {
						if out, err = r.Push(out, &engine.Chunk{Tokens: []harmony.Token{token}}); err != nil {
							t.Fatal(err)
						}
					}
					if out, err = r.Push(out, &engine.Chunk{Finish: engine.FinishStop}); err != nil {
						t.Fatal(err)
					}
				}
				reply := string(r.End(out))
				content, finish, calls := outcome(reply, stream)
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

// outcome is what a reply comes to.
func outcome(reply string, stream bool) (content, finish, calls string) {
	if !stream {
		choice := gjson.Get(reply, "choices.0")
		return choice.Get("message.content").Str, choice.Get("finish_reason").Str, choice.Get("message.tool_calls.0.function.name").Str
	}
	var contents, finishes, names strings.Builder
	for line := range strings.Lines(reply) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		choice := gjson.Get("{"+data, "choices.0")
		contents.WriteString(choice.Get("delta.content").Str)
		finishes.WriteString(choice.Get("finish_reason").Str)
		names.WriteString(choice.Get("delta.tool_calls.0.function.name").Str)
	}
	return contents.String(), finishes.String(), names.String()
}
