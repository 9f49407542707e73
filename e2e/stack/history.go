package stack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// historyAPI is how an agent of one API asks for the next step, and what it reads of the reply.
type historyAPI struct {
	name, path string
	// The request for a conversation.
	body func(model string, conversation []any) any
	// What the agent adds of a reply: its messages, and the result of its call; nil: it has none.
	next func(reply gjson.Result) []any
	// Tokens of the prompt, of it in the cache, and of the output.
	usage func(reply gjson.Result) (prompt, cached, output int64)
}

type members = map[string]any

const writeSchema = `{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}}}`

var historyAPIs = []historyAPI{
	{
		name: "chat", path: "/v1/chat/completions",
		body: func(model string, conversation []any) any {
			tool := members{"type": "function", "function": members{"name": "write", "parameters": json.RawMessage(writeSchema)}}
			return members{"model": model, "messages": conversation, "tools": []any{tool}}
		},
		// Reasoning is left out, and arguments are passed on as they are.
		next: func(reply gjson.Result) []any {
			message := reply.Get("choices.0.message")
			call := message.Get("tool_calls.0")
			if !call.Exists() {
				return nil
			}
			return []any{
				members{"role": "assistant", "content": nil, "tool_calls": message.Get("tool_calls").Value()},
				members{"role": "tool", "tool_call_id": call.Get("id").Str, "content": "ok"},
			}
		},
		usage: func(reply gjson.Result) (prompt, cached, output int64) {
			u := reply.Get("usage")
			return u.Get("prompt_tokens").Int(), u.Get("prompt_tokens_details.cached_tokens").Int(), u.Get("completion_tokens").Int()
		},
	},
	{
		name: "responses", path: "/v1/responses",
		body: func(model string, conversation []any) any {
			tool := members{"type": "function", "name": "write", "parameters": json.RawMessage(writeSchema)}
			return members{"model": model, "input": conversation, "tools": []any{tool}, "store": false}
		},
		next: func(reply gjson.Result) (items []any) {
			for _, item := range reply.Get("output").Array() {
				items = append(items, item.Value())
				if item.Get("type").Str == "function_call" {
					return append(items, members{"type": "function_call_output", "call_id": item.Get("call_id").Str, "output": "ok"})
				}
			}
			return nil
		},
		usage: func(reply gjson.Result) (prompt, cached, output int64) {
			u := reply.Get("usage")
			return u.Get("input_tokens").Int(), u.Get("input_tokens_details.cached_tokens").Int(), u.Get("output_tokens").Int()
		},
	},
	{
		name: "messages", path: "/v1/messages",
		body: func(model string, conversation []any) any {
			tool := members{"name": "write", "input_schema": json.RawMessage(writeSchema)}
			return members{"model": model, "max_tokens": 4000, "messages": conversation, "tools": []any{tool}, "thinking": members{"type": "adaptive"}}
		},
		// The input is an object, which is written again with its members in another order.
		next: func(reply gjson.Result) []any {
			call := reply.Get(`content.#(type=="tool_use")`)
			if !call.Exists() {
				return nil
			}
			return []any{
				members{"role": "assistant", "content": reply.Get("content").Value()},
				members{"role": "user", "content": []any{members{"type": "tool_result", "tool_use_id": call.Get("id").Str, "content": "ok"}}},
			}
		},
		usage: func(reply gjson.Result) (prompt, cached, output int64) {
			u := reply.Get("usage")
			cached = u.Get("cache_read_input_tokens").Int()
			return u.Get("input_tokens").Int() + u.Get("cache_creation_input_tokens").Int() + cached, cached, u.Get("output_tokens").Int()
		},
	},
}

// HistoryIsExact plays a turn of tools in each API. Each prompt has all in the engine's cache, in blocks
// of so many tokens, that the engine has read and written before.
func (d *Dataplane) HistoryIsExact(t *testing.T, model string, block int64) {
	for _, api := range historyAPIs {
		t.Run(api.name, func(t *testing.T) {
			// The simulated engine writes the headers of calls in several forms then, and others as they do.
			var script strings.Builder
			script.WriteString("This is " + t.Name() + ".\nSIM headers=seed seed=5\nTHINK I write the file.\nSAY done")
			text, _ := json.Marshal(strings.Repeat("func area(w, h float64) float64 { return w * h } // <m²>\n", 20))
			for i := range 3 {
				fmt.Fprintf(&script, "\nCALL write {\"text\": %s, \"path\": \"%d.go\"}", text, i)
			}
			conversation := []any{members{"role": "user", "content": script.String()}}

			// The first request has nothing to compare with.
			steps, seen := 0, int64(0)
			for ; ; steps++ {
				body, err := json.Marshal(api.body(model, conversation))
				if err != nil {
					t.Fatal(err)
				}
				reply := gjson.Parse(d.Answer(t, api.path, string(body)))
				prompt, cached, output := api.usage(reply)
				if least := seen / block * block; cached < least || cached > prompt {
					t.Errorf("step %d: of %d tokens of the prompt %d are cached, and at least %d were seen before", steps, prompt, cached, least)
				}

				// The token that ended the output has not been read.
				seen = prompt + output - 1
				more := api.next(reply)
				if more == nil {
					break
				}
				conversation = append(conversation, more...)
			}
			if steps != 3 {
				t.Errorf("%d calls", steps)
			}
		})
	}
}
