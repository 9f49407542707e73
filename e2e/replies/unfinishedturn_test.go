package replies

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A turn in which the model searches and calls code, both of which the filter runs, and calls a tool
// of the client in between.
const searchingTurn = `THINK First I search.
CALL browser.search {"query":"cats"}
CALL local {"n":1}
CALL python x = 42
CALL local {"n":2}
SAY Cats are cheap.`

// TestUnfinishedTurnIsWhole shows through Envoy that each prompt has all steps of the turn, and begins
// with the one before and its output, however the client keeps the conversation.
func TestUnfinishedTurnIsWhole(t *testing.T) {
	builtins := stack.ServeBuiltins(t)
	for plane, set := range map[string]func(*config.Config){
		"with a store":    func(*config.Config) {},
		"without a store": func(c *config.Config) { c.Responses.StoreBytes, c.Limits.KeptReasoningBytes = 0, 0 },
	} {
		d := stack.Start(t, stack.Options{WebSocket: true, Config: func(c *config.Config) {
			builtins(c)
			set(c)
		}})
		s := &sockets{d: d}
		t.Run(plane, func(t *testing.T) {
			stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
				post := func(body object) gjson.Result { return c.Create(t, "completed", body) }
				playSearchingTurn(t, d, object{"store": false}, true, post)
				playSearchingTurn(t, d, object{"store": false, "include": []string{"reasoning.encrypted_content"}}, true, post)
				playSearchingTurn(t, d, object{}, true, post)
				if plane == "with a store" {
					playSearchingTurn(t, d, object{}, false, post)
				}
			})

			t.Run("over one WebSocket", func(t *testing.T) {
				c := s.connect(t)
				playSearchingTurn(t, d, object{"store": false}, false, func(body object) gjson.Result { return c.create(t, body) })
			})
			t.Run("over a WebSocket each", func(t *testing.T) {
				playSearchingTurn(t, d, object{"store": false}, true, func(body object) gjson.Result { return s.connect(t).create(t, body) })
			})
		})
	}
}

type object = map[string]any

// create makes a response over the connection.
func (c socket) create(t *testing.T, body object) gjson.Result {
	t.Helper()
	event := object{"type": "response.create"}
	for name, value := range body {
		event[name] = value
	}
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	c.send(t, string(text))
	done, _ := c.until(t, "response.completed")
	return done.Get("response")
}

// playSearchingTurn plays the turn with a client that sends all it has got, or what is new with the id
// of the response before.
func playSearchingTurn(t *testing.T, d *stack.Dataplane, fields object, whole bool, create func(body object) gjson.Result) {
	t.Helper()
	before := len(d.EngineRequests(t, ""))
	items := []any{object{"role": "user", "content": searchingTurn}}
	previous := ""
	for request := 0; ; request++ {
		body := object{
			"model": stack.SGLangModel, "input": items,
			"tools": stack.JSONArray(webSearch, runCode, `{"type":"function","name":"local","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}`),
		}
		for name, value := range fields {
			body[name] = value
		}
		if !whole && previous != "" {
			body["previous_response_id"] = previous
		}

		r := create(body)
		previous = r.Get("id").Str
		if !whole {
			items = nil
		}
		calls := 0
		for _, it := range r.Get("output").Array() {
			if whole {
				items = append(items, json.RawMessage(it.Raw))
			}
			if it.Get("type").Str == "function_call" {
				calls++
				items = append(items, object{"type": "function_call_output", "call_id": it.Get("call_id").Str, "output": fmt.Sprintf("local result %d", request+1)})
			}
		}
		if calls == 0 {
			break
		}
	}

	requests := d.EngineRequests(t, "")[before:]
	if len(requests) != 5 {
		t.Fatalf("%d model calls, want 5", len(requests))
	}
	steps := []string{
		`{"query":"cats"}<|call|><|start|>browser.search to=assistant<|channel|>analysis<|message|>[`,
		`local result 1`,
		`x = 42<|call|><|start|>python to=assistant<|channel|>analysis<|message|>`,
		`local result 2`,
	}
	for i, r := range requests {
		stack.WantPrompt(t, r.Prompt, steps[:i]...)
		if i > 0 && !strings.HasPrefix(r.Prompt, requests[i-1].Prompt+requests[i-1].Output[0]) {
			t.Errorf("prompt %d does not begin with the one before and its output:\n%s\n%s", i+1, requests[i-1].Prompt+requests[i-1].Output[0], r.Prompt)
		}
	}
}
