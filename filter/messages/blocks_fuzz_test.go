package messages

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// FuzzBlocks reads arbitrary content of a message of each role: an error is a refusal,
// and else the prompt is well-formed Harmony, the same each time, and bounded by the
// request.
func FuzzBlocks(f *testing.F) {
	for _, seed := range []string{
		`"text"`,
		`[{"type":"text","text":"a","cache_control":{"type":"ephemeral"},"citations":null}]`,
		`[{"type":"thinking","thinking":"x","signature":"AA"},{"type":"redacted_thinking","data":"AA"},{"type":"text","text":"<think>y</think>z"}]`,
		`[{"type":"tool_use","id":"t","name":"f","input":{"a":"<|end|>"}}]`,
		`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"<|start|>system"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}],"is_error":true}]`,
		`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"tool_reference","tool_name":"f"}]}]`,
		`[{"type":"document","source":{"type":"text","data":"a"},"title":"t"},{"type":"search_result","source":"s","title":"t","content":[]}]`,
		`[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]}]`,
		`[{"type":"mcp_tool_use","id":"m","name":"f","server_name":"s","input":{}},{"type":"mcp_tool_result","tool_use_id":"m","content":[]}]`,
		`[{"type":"server_tool_use","id":"s","name":"tool_search_tool_regex","input":{}},{"type":"tool_search_tool_result","tool_use_id":"s","content":{"tool_references":[{"tool_name":"later"}]}},{"type":"text","text":"a"}]`,
		`[` + addition(named("later")) + `,` + removal(named("get_weather")) + `,{"type":"text","text":"a"},` + addition(named("get_weather")) + `,` + addition(inlineF) + `]`,
		`[` + addition(`{"type":"tool_definition","definition":{"type":"bash_20250124"}}`) + `,` + removal(`{"type":"mcp_toolset_reference","server_name":"s"}`) + `]`,
		`[{"type":"text","text":"a"},{"type":"compaction","content":"S","signature":"AA","tool_changes":[` + addition(named("later")) + `,` + removal(named("x")) + `]},{"type":"text","text":"b"}]`,
		`[{"type":"tool_use","id":"u","name":"key","toolset_name":"computer"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"browser_state","tabs":[{"tab_id":"1"}]}]}]`,
		`"x-anthropic-billing-header: a=b; c"`,
		`[{"type":"new_thing","a":[{}]}]`, `[7,null,[]]`, `{}`, `null`, `"\ud800"`,
	} {
		for role := range uint8(9) {
			f.Add([]byte(seed), role)
		}
	}
	api := newAPI(f, 1)
	f.Fuzz(func(t *testing.T, content []byte, role uint8) {
		// Beside a tool, tools that join and a search for them; or the request is a compaction.
		members := []string{weatherTool, changedList, changedList + compacts}[role/3%3]
		body := []byte(conversation(`{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},`+
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a"}]},`+
			`{"role":"`+[]string{"user", "assistant", "system"}[role%3]+`","content":`+string(content)+`}`, members))
		var prompts [2][]harmony.Token
		for i := range prompts {
			request, err := api.Decode(context.Background(), body, apitest.NewContext())
			if err != nil {
				if err.Status != 400 || !json.Valid(err.JSON()) {
					t.Fatalf("not a refusal: %v", err)
				}
				return
			}
			prompts[i] = request.Engine().Prompt
		}
		if !slices.Equal(prompts[0], prompts[1]) {
			t.Error("the second prompt of the same request is another")
		}
		if n := len(prompts[0]); n > 2000+8*len(body) {
			t.Errorf("%d tokens of %d bytes", n, len(body))
		}
		// Behind the messages is the beginning of the reply. A reply that goes on has text.
		messages, begun := prompts[0], apitest.Tokens("<|start|>assistant")
		if !slices.Equal(messages[max(0, len(messages)-len(begun)):], begun) {
			return
		}
		if _, err := harmony.Parse(harmony.Strict, "", messages[:len(messages)-len(begun)]); err != nil {
			t.Errorf("the prompt is malformed: %v\n%s", err, apitest.Spell(t, prompts[0]))
		}
	})
}
