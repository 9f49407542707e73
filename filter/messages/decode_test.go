package messages

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	userHi  = `{"role":"user","content":"Hi"}`
	callA   = `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_a","name":"get_weather","input":{}}]}`
	resultA = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":"sunny"}]}`
)

// effortOf is a message that does no more than set the effort.
func effortOf(effort string) string {
	return `{"role":"system","output_config":{"effort":"` + effort + `"}}`
}

// clearing is a message whose text the next message of the user ends.
func clearing(text string) string {
	return `{"role":"system","clear_at":"next_user_message","content":"` + text + `"}`
}

func TestDecodeRejects(t *testing.T) {
	t.Parallel()
	block := func(role, block string) string {
		return conversation(`{"role":"`+role+`","content":[`+block+`]}`, ``)
	}
	for _, c := range []struct{ name, body, param, message string }{
		{"no model", `{"messages":[` + userHi + `]}`, "model", "missing"},
		{"no messages", `{"model":"m"}`, "messages", "at least one"},
		{"empty messages", conversation(``, ``), "messages", "at least one"},
		{"a null message", conversation(`null`, ``), "messages[0]", "an object"},
		{"no role", conversation(`{"content":"Hi"}`, ``), "messages[0].role", "must be user"},
		{"an unknown role", conversation(`{"role":"tool","content":"Hi"}`, ``), "messages[0].role", "must be user"},
		{"no content", conversation(`{"role":"user"}`, ``), "messages[0].content", "no content"},
		{"content of a wrong type", conversation(`{"role":"user","content":7}`, ``), "messages[0].content", "string or an array"},
		{"a block without type", block("user", `{"text":"a"}`), "messages[0].content[0].type", "no type"},
		{"a block of a document without type", block("user", `{"type":"document","source":{"type":"content","content":[{}]}}`), "messages[0].content[0].source.content[0].type", "no type"},
		{"a file without id", block("user", `{"type":"container_upload"}`), "messages[0].content[0].file_id", "missing"},
		{"a served call without id", block("assistant", `{"type":"server_tool_use","name":"f","input":{}}`), "messages[0].content[0].id", "missing"},
		{"a served call without name", block("assistant", `{"type":"mcp_tool_use","id":"m","name":null,"input":{}}`), "messages[0].content[0].name", "missing"},
		{"a served result without id", block("assistant", `{"type":"web_search_tool_result","content":[]}`), "messages[0].content[0].tool_use_id", "missing"},
		{"a text block without text", block("user", `{"type":"text"}`), "messages[0].content[0]", "string \"text\""},
		{"a result of the assistant", block("assistant", `{"type":"tool_result","tool_use_id":"a"}`), "messages[0].content[0].type", "messages of the user"},
		{"a call of the user", block("user", `{"type":"tool_use","id":"a","name":"f"}`), "messages[0].content[0].type", "messages of the assistant"},
		{"thinking of the user", block("user", `{"type":"thinking","thinking":"a"}`), "messages[0].content[0].type", "messages of the assistant"},
		{"a call without id", block("assistant", `{"type":"tool_use","name":"f"}`), "messages[0].content[0].id", "no id"},
		{"a call without name", block("assistant", `{"type":"tool_use","id":"a"}`), "messages[0].content[0].name", "no name"},
		{"a call without result", conversation(userHi+`,`+callA, ``), "messages[1].content[0]", "has no output"},
		{"calls without results", conversation(userHi+`,{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f"},{"type":"tool_use","id":"call_2","name":"f"},{"type":"tool_use","id":"3","name":"f"}]}`, ``), "messages[1].content[0]", `ids "toolu_1", "call_2" and "3" have`},
		{"results without calls", conversation(userHi+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1"},{"type":"tool_result","tool_use_id":"toolu_2"}]}`, ``), "messages[1].content[0]", `ids "toolu_1" and "toolu_2"`},
		{"calls of one id, run by a server", block("assistant", `{"type":"server_tool_use","id":"srvtoolu_1","name":"f"},{"type":"server_tool_use","id":"srvtoolu_1","name":"f"},{"type":"f_tool_result","tool_use_id":"srvtoolu_1"}`), "messages[0].content[1]", `Two tool calls have the id "srvtoolu_1".`},
		{"a result without call", conversation(userHi+`,`+resultA, ``), "messages[1].content[0]", "no tool call"},
		{"a result without id", block("user", `{"type":"tool_result","content":"a"}`), "messages[0].content[0].tool_use_id", "no tool_use_id"},
		{"system of a wrong type", ask(`,"system":7`), "system", "text blocks"},
		{"a system block that is no text", ask(`,"system":[{"type":"image"}]`), "system[0]", "type \"text\""},
		{"max_tokens", ask(`,"max_tokens":-1`), "max_tokens", "between 0"},
		{"a summary without room", ask(`,"max_tokens":0,"compaction":{"type":"summarize"}`), "max_tokens", "nothing is written"},
		{"a budget beside no output", ask(`,"max_tokens":0,"thinking":{"type":"enabled","budget_tokens":1024}`), "thinking.budget_tokens", "less than"},
		{"min_tokens", ask(`,"max_tokens":3,"min_tokens":4`), "min_tokens", "larger"},
		{"an empty stop sequence", ask(`,"stop_sequences":["a",""]`), "stop_sequences[1]", "empty"},
		{"many stop sequences", ask(`,"stop_sequences":[` + strings.Repeat(`"a",`, 64) + `"a"]`), "stop_sequences", "more than 64"},
		{"thinking of an unknown type", ask(`,"thinking":{"type":"on"}`), "thinking.type", "must be enabled"},
		{"thinking without type", ask(`,"thinking":{}`), "thinking.type", "no type"},
		{"enabled thinking without a budget", ask(`,"thinking":{"type":"enabled"}`), "thinking.budget_tokens", "at least 1024"},
		{"a budget of null", ask(`,"thinking":{"type":"enabled","budget_tokens":null}`), "thinking.budget_tokens", "at least 1024"},
		{"a small budget", ask(`,"max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":1023}`), "thinking.budget_tokens", "at least 1024"},
		{"a budget without an end", ask(`,"thinking":{"type":"enabled","budget_tokens":-1}`), "thinking.budget_tokens", "at least 1024"},
		{"a budget of all tokens", ask(`,"thinking":{"budget_tokens":2000,"type":"enabled"},"max_tokens":2000`), "thinking.budget_tokens", "less than"},
		{"a budget of adaptive thinking", ask(`,"max_tokens":4000,"thinking":{"type":"adaptive","budget_tokens":2000}`), "thinking.budget_tokens", "not to adaptive"},
		{"no budget of adaptive thinking", ask(`,"thinking":{"budget_tokens":0,"type":"adaptive"}`), "thinking.budget_tokens", "not to adaptive"},
		{"a budget of no thinking", ask(`,"thinking":{"type":"disabled","budget_tokens":2000}`), "thinking.budget_tokens", "not to disabled"},
		{"a budget of thinking between tools", ask(`,"thinking":{"type":"between_tools","budget_tokens":2000}`), "thinking.budget_tokens", "not to between_tools"},
		{"an unknown display", ask(`,"thinking":{"type":"adaptive","display":"all"}`), "thinking.display", "summarized"},
		{"a display of another type", ask(`,"thinking":{"type":"adaptive","display":true}`), "thinking.display", "summarized"},
		{"a message without anything", conversation(userHi+`,{"role":"system"}`, ``), "messages[1].content", "no content"},
		{"a message with an empty setting alone", conversation(userHi+`,{"role":"system","output_config":{}}`, ``), "messages[1].content", "no content"},
		{"an unknown effort of a message", conversation(userHi+`,`+effortOf("huge"), ``), "messages[1].output_config.effort", "one of"},
		{"a format of a message", conversation(userHi+`,{"role":"system","content":"a","output_config":{"format":{"type":"json_schema"}}}`, ``), "messages[1].output_config.format", "output_config"},
		{"an effort of the user", conversation(`{"role":"user","content":"Hi","output_config":{"effort":"low"}}`, ``), "messages[0].output_config", "role system"},
		{"a user's text that is cleared", conversation(`{"role":"user","content":"Hi","clear_at":"never"}`, ``), "messages[0].clear_at", "role system"},
		{"an unknown end of a text", conversation(userHi+`,{"role":"system","content":"a","clear_at":"soon"}`, ``), "messages[1].clear_at", "next_user_message"},
		{"messages that only set efforts", conversation(effortOf("low"), ``), "messages", "at least one"},
		{"effort", ask(`,"output_config":{"effort":"huge"}`), "output_config.effort", "one of"},
		{"a format of another type", ask(`,"output_config":{"format":{"type":"xml"}}`), "output_config.format.type", "json_schema"},
		{"a format without schema", ask(`,"output_format":{"type":"json_schema"}`), "output_format.schema", "JSON Schema"},
		{"two formats", ask(`,"output_format":{"type":"json_schema","schema":{}},"output_config":{"format":{"type":"json_schema","schema":{}}}`), "output_config.format", "more than one"},
		{"a thread", ask(`,"thread":{"type":"create"}`), "thread", "whole conversation"},
		{"a tool without name", ask(`,"tools":[{"input_schema":{}}]`), "tools[0].name", "no name"},
		{"a schema of a wrong type", ask(`,"tools":[{"name":"f","input_schema":[]}]`), "tools[0].input_schema", "JSON Schema"},
		{"many tools", ask(`,"tools":[` + strings.Repeat(`{"name":"f","defer_loading":true},`, 1) + strings.Repeat(`{"type":"web_search_20250305"},`, turn.DefaultLimits().Tools) + `{}]`), "tools", "more than 512"},
		{"deferred tools of one name", ask(`,"tools":[{"name":"f","defer_loading":true},{"name":"f","defer_loading":true},{"name":"g","defer_loading":true},{"name":"g","defer_loading":true}]`), "tools", `names "f" and "g".`},
		{"an unknown tool_choice", ask(`,"tool_choice":{"type":"required"}`), "tool_choice.type", "must be auto"},
		{"tool_choice without a name", ask(weatherTool + `,"tool_choice":{"type":"tool"}`), "tool_choice.name", "no name"},
		{"tool_choice of an unknown tool", ask(weatherTool + `,"tool_choice":{"type":"tool","name":"f"}`), "tool_choice", "not one of the tools"},
		{"any of no tools", ask(`,"tool_choice":{"type":"any"}`), "tool_choice", "no tools"},
		{"a prefill under a format", conversation(userHi+`,{"role":"assistant","content":"a"}`, `,"output_format":{"type":"json_schema","schema":{}}`), "messages", "cannot be continued"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := newAPI(t, 1).Decode(context.Background(), []byte(c.body), apitest.NewContext())
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.message) {
				t.Errorf("got %d, param %q, %q; want param %q, %q", err.Status, err.Param, err.Message, c.param, c.message)
			}
		})
	}
}

// TestInterleavedBudget shows that a budget for all steps of a turn may exceed what one message
// may have, and that the rest of its rule stands. Qwen Code sends the first of these.
func TestInterleavedBudget(t *testing.T) {
	t.Parallel()
	const beta = "interleaved-thinking-2025-05-14"
	for _, c := range []struct {
		betas    []string
		thinking string
		refused  bool
	}{
		{[]string{beta, "effort-2025-11-24"}, `{"type":"enabled","budget_tokens":32000}`, false},
		{[]string{"prompt-caching-scope-2026-01-05", beta}, `{"type":"enabled","budget_tokens":16384}`, false},
		{[]string{"interleaved-thinking-2027-01-01"}, `{"type":"enabled","budget_tokens":32000}`, false},
		{[]string{beta}, `{"type":"enabled","budget_tokens":1023}`, true},
		{[]string{beta}, `{"type":"enabled"}`, true},
		{[]string{beta}, `{"type":"adaptive","budget_tokens":2000}`, true},
		{[]string{"effort-2025-11-24"}, `{"type":"enabled","budget_tokens":32000}`, true},
		{nil, `{"type":"enabled","budget_tokens":16384}`, true},
		{nil, `{"type":"enabled","budget_tokens":16383}`, false},
		{nil, `{"type":"disabled","budget_tokens":0}`, false},
		{nil, `{"type":"adaptive","budget_tokens":null}`, false},
	} {
		body := []byte(ask(`,"max_tokens":16384,"thinking":` + c.thinking))
		ctx, rc, a := context.Background(), apitest.NewContext(), newAPI(t, 1)
		_, err := a.Decode(ctx, body, rc, c.betas...)
		_, counted := a.CountTokens(ctx, body, rc, c.betas...)
		_, rendered := a.Render(ctx, body, rc, c.betas...)
		for _, err := range []*apierror.Error{err, counted, rendered} {
			if (err != nil) != c.refused || err != nil && err.Param != "thinking.budget_tokens" {
				t.Errorf("%q %s: %v", c.betas, c.thinking, err)
			}
		}
	}
}

// TestPrompt shows what the model sees of blocks that are more than text.
func TestPrompt(t *testing.T) {
	t.Parallel()
	user := func(blocks string) string { return conversation(`{"role":"user","content":[`+blocks+`]}`, ``) }
	result := func(content string) string {
		return conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":[`+content+`]}]}`, weatherTool)
	}
	for _, c := range []struct{ name, body, want string }{
		{"a document of text", user(`{"type":"document","title":"T","context":"C","source":{"type":"text","data":"D"}},{"type":"text","text":"Q"}`), "<|start|>user<|message|>T\nC\nD\nQ<|end|>"},
		{"a document of blocks", user(`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"u"}}]}}`), "<|message|>a\n" + turn.ImagePlaceholder + "<|end|>"},
		{"a document that is a file", user(`{"type":"text","text":"Q "},{"type":"document","title":"T","source":{"type":"base64","data":"AAAA"}}`), "<|message|>Q \nT\n" + "[A document was here. This model cannot read it.]" + "<|end|>"},
		{"a search result", user(`{"type":"search_result","title":"T","source":"https://s","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`), "<|message|>T\nhttps://s\na\nb<|end|>"},
		{"an unknown block with text", user(`{"type":"new","text":"a"}`), "<|start|>user<|message|>a<|end|>"},
		{"an unknown block without text", user(`{"type":"new","other":"a"},{"type":"text","text":"b"}`), "<|start|>user<|message|>b<|end|>"},
		{"no blocks", user(``), "every message.<|end|><|start|>assistant"},
		{"a search result of a tool", result(`{"type":"search_result","title":"T","source":"s","content":[]}`), "<|message|>T\ns<|end|>"},
		{"a browser's state", result(`{"type":"browser_state","tabs":[{"tab_id":"t1","title":"Shop","url":"https://s","active":true},{"tab_id":"t2","title":"","url":""}],"state_changes":[{"type":"download_completed","download_id":"d","url":"https://s/f","size_bytes":7}]}`), "<|message|>Open tabs:\n- t1 (active): Shop https://s\n- t2:  \ndownload_completed: d https://s/f 7<|end|>"},
		{"a document of a tool", result(`{"type":"document","source":{"type":"text","data":"D"}}`), "<|message|>D<|end|>"},
		{"no output", conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a"}]}`, weatherTool), "to=assistant<|channel|>commentary<|message|><|end|>"},
		{"another client's prefix of the id", conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_a","content":"x"}]}`, weatherTool), "<|message|>x<|end|>"},
		{
			"a search that a server ran", conversation(userHi+`,{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}},
			{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","title":"T","url":"https://u","encrypted_content":"E"}]},
			{"type":"server_tool_use","id":"srvtoolu_2","name":"web_search","input":{}},{"type":"text","text":"Done."}]},`+userHi, ``),
			`<|start|>assistant to=functions.web_search<|channel|>commentary json<|message|>{"query":"q"}<|call|><|start|>functions.web_search to=assistant<|channel|>commentary<|message|>T` + "\n" + `https://u<|end|><|start|>assistant<|channel|>final<|message|>Done.<|end|>`,
		},
		{
			"a call of an MCP server", conversation(userHi+`,{"role":"assistant","content":[{"type":"mcp_tool_use","id":"m1","name":"f","server_name":"s","input":{}},
			{"type":"mcp_tool_result","tool_use_id":"m1","content":[{"type":"text","text":"R"}]}]},`+userHi, ``),
			`<|start|>assistant to=s.f<|channel|>commentary json<|message|>{}<|call|><|start|>s.f to=assistant<|channel|>commentary<|message|>R<|end|>`,
		},
		{"a billing line before the system prompt", ask(`,"system":"x-anthropic-billing-header: a;\nBe terse."`), "# Instructions\n\nBe terse.<|end|>"},
		{"a billing line alone", ask(`,"system":[{"type":"text","text":"x-anthropic-billing-header: a;"}]`), "every message.<|end|><|start|>user"},
		{"the same words elsewhere", ask(`,"system":[{"type":"text","text":"a"},{"type":"text","text":"x-anthropic-billing-header: b"}]`), "a\nx-anthropic-billing-header: b<|end|>"},
		{"text before a call", conversation(userHi+`,{"role":"assistant","content":[{"type":"text","text":"One "},{"type":"text","text":"moment."},{"type":"tool_use","id":"toolu_a","name":"get_weather","input":{}}]},`+resultA, weatherTool), "<|channel|>commentary<|message|>One moment.<|end|>"},
		{"effort", ask(`,"output_config":{"effort":"xhigh"}`), "Reasoning: high"},
		{"no thinking", ask(`,"thinking":{"type":"disabled"}`), "Reasoning: low"},
		{"no thinking, with an effort", ask(`,"thinking":{"type":"disabled"},"output_config":{"effort":"high"}`), "Reasoning: low"},
		{"no thinking, before an effort", ask(`,"output_config":{"effort":"max"},"thinking":{"display":"summarized","type":"disabled"}`), "Reasoning: low"},
		{"no thinking, with an effort of a message", conversation(userHi+`,`+effortOf("high"), `,"thinking":{"type":"disabled"}`), "Reasoning: low"},
		{"an effort of a message", conversation(userHi+`,`+effortOf("low"), ``), "Reasoning: low"},
		{"an effort of a message and of the request", conversation(userHi+`,`+effortOf("low"), `,"output_config":{"effort":"high"}`), "Reasoning: low"},
		{"efforts of messages", conversation(effortOf("low")+`,`+userHi+`,`+effortOf("max")+`,`+userHi, `,"output_config":{"effort":"low"}`), "Reasoning: high"},
		{"a message with an effort alone", conversation(userHi+`,`+effortOf("low")+`,{"role":"user","content":"Go on"}`, ``), "<|message|>Hi<|end|><|start|>user<|message|>Go on<|end|>"},
		{"a message with an effort and a text", conversation(userHi+`,{"role":"system","output_config":{"effort":"low"},"content":"Be terse."}`, ``), "<|message|>Hi<|end|><|start|>developer<|message|># Instructions\n\nBe terse.<|end|>"},
		{"a message with an empty setting", conversation(userHi+`,{"role":"system","output_config":{},"content":"Be terse."}`, ``), "Be terse.<|end|>"},
		{"a text that is cleared", conversation(userHi+`,`+clearing("A")+`,`+clearing("B")+`,{"role":"assistant","content":"C"},`+userHi, ``), "<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>C<|end|><|start|>user<|message|>Hi<|end|>"},
		{"a text that is cleared by results", conversation(userHi+`,`+clearing("A")+`,`+callA+`,`+resultA, weatherTool), "<|message|>Hi<|end|><|start|>assistant to="},
		{"texts of which one is cleared", conversation(userHi+`,`+clearing("A")+`,{"role":"system","content":"B"},`+userHi, ``), "Hi<|end|><|start|>developer<|message|># Instructions\n\nB<|end|><|start|>user"},
		{"a text that is not cleared yet", conversation(userHi+`,`+clearing("A"), ``), "# Instructions\n\nA<|end|><|start|>assistant"},
		{"a text that stays", conversation(userHi+`,{"role":"system","clear_at":"never","content":"A"},`+userHi, ``), "# Instructions\n\nA<|end|><|start|>user"},
		{"a billing line before a text on the same line", ask(`,"system":"x-anthropic-billing-header: cc_version=2.1.330.17f; cc_entrypoint=sdk-cli; Be terse; x=y."`), "# Instructions\n\nBe terse; x=y.<|end|>"},
		{"a billing line without a semicolon", ask(`,"system":"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli\r\nBe terse."`), "# Instructions\n\nBe terse.<|end|>"},
		{"a billing line that is a message", conversation(userHi+`,{"role":"system","content":"x-anthropic-billing-header: cc_version=2.1; cch=ab;"},`+userHi, ``), "<|message|>Hi<|end|><|start|>user<|message|>Hi<|end|>"},
		{"a billing line that is a block of a message", conversation(userHi+`,{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: a=b;"},{"type":"text","text":"Be terse."}]}`, ``), "Hi<|end|><|start|>developer<|message|># Instructions\n\nBe terse.<|end|>"},
		{"a billing line of a user", conversation(`{"role":"user","content":"x-anthropic-billing-header: a=b;"}`, ``), "<|message|>x-anthropic-billing-header: a=b;<|end|>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := prompt(t, c.body); !strings.Contains(got, c.want) {
				t.Errorf("the prompt has no %q:\n%s", c.want, got)
			}
		})
	}
}

// TestToolsJoin shows that a deferred tool joins after the result that refers to it,
// so that the prompt of the request before is the beginning of this one, wherever the
// tools stand in the list.
func TestToolsJoin(t *testing.T) {
	t.Parallel()
	const (
		bash        = `{"name":"Bash","input_schema":{"type":"object"}}`
		cron        = `{"name":"CronList","input_schema":{"type":"object"},"defer_loading":true,"strict":true}`
		placeholder = `{"name":"Placeholder","input_schema":{"type":"object"},"defer_loading":true}`
		search      = `{"name":"ToolSearch","input_schema":{"type":"object"}}`
		called      = userHi + `,{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":""},{"type":"tool_use","id":"toolu_1","name":"ToolSearch","input":{}}]}`
		found       = called + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"tool_reference","tool_name":"CronList"},{"type":"tool_reference","tool_name":"Gone"}]}]}`
		calledAgain = found + `,{"role":"assistant","content":[{"type":"tool_use","id":"toolu_2","name":"CronList","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_2","content":"none"}]}`
	)
	first := prompt(t, conversation(userHi, `,"tools":[`+bash+`,`+search+`]`))
	second := prompt(t, conversation(found, `,"tools":[`+bash+`,`+cron+`,`+placeholder+`,`+search+`]`))
	third := prompt(t, conversation(calledAgain, `,"tools":[`+cron+`,`+bash+`,`+search+`,`+placeholder+`]`))
	if !strings.HasPrefix(second, first) || !strings.HasPrefix(third, strings.TrimSuffix(second, "<|start|>assistant")) {
		t.Errorf("the prefix moves:\n%s\n\n%s\n\n%s", first, second, third)
	}
	for _, p := range []string{first, second, third} {
		if strings.Contains(p, "Placeholder") {
			t.Errorf("a deferred tool is shown:\n%s", p)
		}
	}
	if strings.Contains(first, "CronList") || strings.Count(third, "type CronList") != 1 {
		t.Errorf("the tool is not there once:\n%s", third)
	}
	added := prompt(t, conversation(userHi+`,{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"CronList"}},{"type":"text","text":"New."}]}`, `,"tools":[`+bash+`,`+cron+`]`))
	if !strings.Contains(added, "<|start|>user<|message|>Hi<|end|><|start|>developer<|message|># Tools") {
		t.Errorf("a tool that a message adds:\n%s", added)
	}
}

func TestConstraint(t *testing.T) {
	t.Parallel()
	weather := constraint.Tool{Recipient: "functions.get_weather"}
	a := testAPI(t)
	a.Constraint(t, `,"output_config":{"format":{"type":"json_schema","schema":{"type":"array"}}}`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}})
	a.Constraint(t, `,"output_format":{"type":"json_schema","schema":{"type":"array"}}`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}})
	for _, c := range []struct {
		name, choice string
		want         turn.Choice
		one, none    bool
	}{
		{"auto", `{"type":"auto"}`, turn.Choice{}, false, false},
		{"one call at most", `{"type":"auto","disable_parallel_tool_use":true}`, turn.Choice{}, true, false},
		{"any", `{"type":"any"}`, turn.Choice{Required: true}, false, false},
		{"none", `{"type":"none"}`, turn.Choice{}, false, true},
		{"a tool", `{"type":"tool","name":"get_weather"}`, turn.Choice{Required: true, Allowed: []turn.ToolName{{Namespace: turn.FunctionsNamespace, Name: "get_weather"}}}, true, false},
	} {
		request := mustDecode(t, ask(weatherTool+`,"tool_choice":`+c.choice))
		if got := request.Engine().Constraint != nil; got != c.want.Required {
			t.Errorf("%s: the output is constrained: %v (%v)", c.name, got, weather)
		}
		if got := strings.Contains(apitest.Spell(t, request.Engine().Prompt), "get_weather"); got == c.none {
			t.Errorf("%s: the tool is offered: %v", c.name, got)
		}
		two := answer(t, request, ` to=functions.get_weather<|channel|>commentary json<|message|>{"city":"a"}<|call|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"b"}<|call|>`, "stop")
		if got := strings.Count(two, "tool_use\",\"id"); got != map[bool]int{false: 2, true: 1}[c.one] && !c.none || c.none && got > 0 {
			t.Errorf("%s: %d calls:\n%s", c.name, got, two)
		}
	}
}

func TestMaxTokens(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Model.ContextLength = 100
	request := decodeWith(t, rc, ask(`,"max_tokens":128000`))
	if got, want := request.Engine().MaxTokens, 100-len(request.Engine().Prompt); got != want {
		t.Errorf("MaxTokens = %d, want what the context leaves: %d", got, want)
	}
	rc.Model.ContextLength = 20
	_, err := newAPI(t, 1).Decode(context.Background(), []byte(ask(``)), rc)
	if err == nil {
		t.Fatal("a prompt beyond the context is accepted")
	}
	if _, object := err.Anthropic(""); !strings.Contains(string(object), `"message":"prompt is too long: 68 tokens > 20 maximum"`) {
		t.Errorf("a prompt beyond the context: %s", object)
	}
}

func TestIgnored(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","service_tier":"auto","made_up":1,"cache_control":{"type":"ephemeral"},"metadata":{"user_id":"u","other":1},"thinking":{"type":"enabled","budget_tokens":2000,"made_up":1},
		"output_config":{"effort":"low","task_budget":{}},"mcp_servers":[],
		"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"container_upload","file_id":"f"}],"id":"m1"}],
		"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8},{"type":"code_execution_20250825","name":"code_execution"},{"type":"mcp_toolset","mcp_server_name":"s"},{"name":"f","input_schema":{},"allowed_callers":["direct"]},{"type":"` + strings.Repeat("long", 100) + `"}]}`
	want := []string{
		"service_tier", "made_up", "metadata.other", "thinking.made_up", "output_config.task_budget", "mcp_servers", "messages.id", "messages.content.container_upload",
		"tools.web_search_20250305", "tools.code_execution_20250825", "tools.mcp_toolset", "tools.allowed_callers",
		"tools." + strings.Repeat("long", 16),
	}
	got := mustDecode(t, body).Ignored()
	less := func(a, b string) bool { return a < b }
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(less)); diff != "" {
		t.Error(diff)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	session := func(id string) string { return mustDecode(t, ask(`,"metadata":{"user_id":`+id+`}`)).Affinity().Session }
	named := session(`"{\"device_id\":\"d\",\"session_id\":\"s-1\"}"`)
	if other := session(`"{\"device_id\":\"e\",\"session_id\":\"s-1\"}"`); named == "" || named != other {
		t.Errorf("the same session is %q and %q", named, other)
	}
	if other := session(`"{\"device_id\":\"d\",\"session_id\":\"s-2\"}"`); other == named {
		t.Error("another session is the same")
	}
	if plain := session(`"s-1"`); plain != named {
		t.Errorf("a user_id that is a session: %q, want %q", plain, named)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	const part = `[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]`
	user := conversation(`{"role":"user","content":`+part+`}`, ``)
	tool := conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":`+part+`}]}`, ``)
	testAPI(t).Images(t, user, "messages[0].content[0]", tool)
}

// TestSpecialText shows that texts which spell control tokens remain texts, in all
// fields with texts.
func TestSpecialText(t *testing.T) {
	t.Parallel()
	// system, developer, user, analysis, preamble, call, result, user, developer, and the reply's start
	want := map[harmony.Token]int{harmony.TokenStart: 10, harmony.TokenMessage: 9, harmony.TokenEnd: 8, harmony.TokenCall: 1, harmony.TokenChannel: 4}
	testAPI(t).SpecialText(t, func(evil string) string {
		return `{"model":"m","system":[{"type":"text","text":` + evil + `}],"messages":[{"role":"user","content":[{"type":"text","text":` + evil + `},{"type":"document","title":` + evil + `,"source":{"type":"text","data":` + evil + `}}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":` + evil + `,"signature":` + evil + `},{"type":"text","text":` + evil + `},{"type":"tool_use","id":` + evil + `,"name":` + evil + `,"input":{` + evil + `:` + evil + `}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":` + evil + `,"content":[{"type":"text","text":` + evil + `},{"type":"tool_reference","tool_name":` + evil + `}]},{"type":"text","text":` + evil + `}]},
		{"role":"system","content":` + evil + `}],
		"tools":[{"name":` + evil + `,"description":` + evil + `,"input_schema":{"type":"object","properties":{` + evil + `:{"description":` + evil + `,"default":` + evil + `}}},"input_examples":[{` + evil + `:` + evil + `}]}]}`
	}, want)
}

// TestNestedTexts shows that JSON in a string nests as deeply as a client likes.
func TestNestedTexts(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20<<20)
	mustDecode(t, ask(`,"metadata":{"user_id":"`+deep+`"}`))
}
