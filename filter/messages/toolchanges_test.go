package messages

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// changing is a message of the system with these blocks.
func changing(blocks ...string) string {
	return `{"role":"system","content":[` + strings.Join(blocks, ",") + `]}`
}

func addition(tool string) string { return `{"type":"tool_addition","tool":` + tool + `}` }
func removal(tool string) string  { return `{"type":"tool_removal","tool":` + tool + `}` }
func named(name string) string    { return `{"type":"tool_reference","name":"` + name + `"}` }

const (
	inlineF     = `{"type":"tool_definition","definition":{"name":"f","description":"D.","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}}`
	changedList = `,"tools":[{"name":"get_weather","input_schema":{"type":"object"}},{"name":"later","input_schema":{"type":"object"},"defer_loading":true},{"type":"web_fetch_20250910","name":"web_fetch"}]`

	joinsHere = "<|message|>Hi<|end|><|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n"
	goneHere  = "<|start|>developer<|message|># Instructions\n\nThese tools are not available any more, do not call them: "
	againHere = "<|start|>developer<|message|># Instructions\n\nThese tools are available again: "
)

// TestToolChanges shows what the model sees of tools that come and go in mid-conversation.
func TestToolChanges(t *testing.T) {
	t.Parallel()
	ends := `,{"role":"assistant","content":"A"},` + userHi
	for _, c := range []struct{ name, messages, has, lacks string }{
		{"an inline definition", userHi + `,` + changing(addition(inlineF)), joinsHere + "// D.\ntype f = (_: {\na?: number,\n})", ""},
		{"an inline definition of a client's tool", userHi + `,` + changing(addition(`{"type":"tool_definition","definition":{"type":"bash_20250124","name":"bash"}}`)), "type bash = (_: {", ""},
		{"a deferred tool", userHi + `,` + changing(addition(named("later"))), joinsHere + "type later =", ""},
		{"two tools", userHi + `,` + changing(addition(named("later")), addition(inlineF), `{"type":"text","text":"Use them."}`), "type f = (_: {\na?: number,\n}) => any;\n\n} // namespace functions<|end|><|start|>developer<|message|># Instructions\n\nUse them.<|end|>", ""},
		{"a tool that is there", userHi + `,` + changing(addition(named("get_weather"))), "<|message|>Hi<|end|><|start|>assistant", ""},
		{"a tool that is not run here", userHi + `,` + changing(addition(named("web_fetch")), removal(named("web_fetch"))), "<|message|>Hi<|end|><|start|>assistant", ""},
		{"a removal", userHi + `,` + changing(removal(named("get_weather"))), "<|message|>Hi<|end|>" + goneHere + "functions.get_weather<|end|>", ""},
		{"a removal of several", userHi + `,` + changing(addition(inlineF)) + ends + `,` + changing(removal(named("f")), removal(named("get_weather"))), goneHere + "functions.f, functions.get_weather<|end|>", ""},
		{"a removal of what was not shown", userHi + `,` + changing(removal(named("later"))), "<|message|>Hi<|end|><|start|>assistant", "later"},
		{"a removal and an addition", userHi + `,` + changing(removal(named("get_weather"))) + ends + `,` + changing(addition(named("get_weather"))), againHere + "functions.get_weather<|end|>", ""},
		{"a removal and an addition in one message", userHi + `,` + changing(removal(named("get_weather")), addition(inlineF)), goneHere + "functions.get_weather<|end|><|start|>developer<|message|># Tools", ""},
		{"another definition", userHi + `,` + changing(addition(inlineF)) + ends + `,` + changing(addition(strings.Replace(inlineF, "D.", "E.", 1))), "// E.\ntype f =", ""},
		{"a text that is cleared beside a change", userHi + `,{"role":"system","clear_at":"next_user_message","content":[` + addition(inlineF) + `,{"type":"text","text":"Hush."}]},` + userHi, "type f =", "Hush."},
		{"a tool of a server that is not asked", userHi + `,` + changing(removal(`{"type":"mcp_toolset_reference","server_name":"docs"}`)), "<|message|>Hi<|end|><|start|>assistant", ""},
	} {
		shown := prompt(t, conversation(c.messages, changedList))
		if !strings.Contains(shown, c.has) || c.lacks != "" && strings.Contains(shown, c.lacks) {
			t.Errorf("%s: the prompt has no %q, or has %q:\n%s", c.name, c.has, c.lacks, shown)
		}
	}
}

// TestToolChangesRefused has changes that are none.
func TestToolChangesRefused(t *testing.T) {
	t.Parallel()
	const at = "messages[1].content[0]"
	for _, c := range []struct{ name, message, param, text string }{
		{"an unknown tool", changing(addition(named("gone"))), at + ".tool.name", `"gone"`},
		{"an unknown tool that is removed", changing(removal(named("gone"))), at + ".tool.name", `"gone"`},
		{"a tool that comes later", changing(removal(named("f"))) + `,` + changing(addition(inlineF)), at + ".tool.name", `"f"`},
		{"no name", changing(addition(`{"type":"tool_reference"}`)), at + ".tool.name", "missing"},
		{"no server", changing(addition(`{"type":"mcp_toolset_reference"}`)), at + ".tool.server_name", "missing"},
		{"no tool", changing(`{"type":"tool_addition"}`), at + ".tool.type", "tool_reference"},
		{"no definition", changing(addition(`{"type":"tool_definition"}`)), at + ".tool.definition", "definition"},
		{"a definition without a name", changing(addition(`{"type":"tool_definition","definition":{"input_schema":{}}}`)), at + ".tool.definition.name", "no name"},
		{"a removal by definition", changing(removal(inlineF)), at + ".tool.type", "tool_removal"},
		{"an unknown kind", changing(addition(`{"type":"magic","name":"f"}`)), at + ".tool.type", "tool_reference"},
		{"a change of the user", `{"role":"user","content":[` + addition(inlineF) + `]}`, at + ".type", "messages of the system"},
		{"a removal of the user", `{"role":"user","content":[` + removal(named("get_weather")) + `]}`, at + ".type", "messages of the system"},
		{"a change of the assistant", `{"role":"assistant","content":[` + addition(inlineF) + `]}`, at + ".type", "messages of the system"},
	} {
		_, err := newAPI(t, 1).Decode(context.Background(), []byte(conversation(userHi+`,`+c.message, changedList)), apitest.NewContext())
		if err == nil || err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	choice := `,"tool_choice":{"type":"tool","name":"get_weather"}`
	gone := conversation(userHi+`,`+changing(removal(named("get_weather"))), changedList+choice)
	if _, err := newAPI(t, 1).Decode(context.Background(), []byte(gone), apitest.NewContext()); err == nil || err.Param != "tool_choice" {
		t.Errorf("a choice of a tool that was withdrawn: %v", err)
	}
}

// TestWithdrawn shows that calls of a tool that was withdrawn are not made: the model is told,
// and goes on.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	s := newService(t)
	gone := conversation(userHi+`,`+changing(removal(named("get_weather"))), changedList)
	message := s.play(t, gone, callOf("get_weather", `{}`), answered)
	if message.Get("content.#").Int() != 1 || message.Get("content.0.text").Str != "Done." || message.Get("stop_reason").Str != "end_turn" {
		t.Errorf("the message is %s", message.Raw)
	}
	if !strings.Contains(s.prompts[1], `There is no tool \"get_weather\"`) && !strings.Contains(s.prompts[1], `There is no tool "get_weather"`) {
		t.Errorf("the model is told\n%s", s.prompts[1])
	}

	// Where no turn can follow the client does not see the call either.
	request := mustDecode(t, gone)
	if reply := apitest.Play(t, request, api.SingleCall, []engine.Chunk{{Tokens: apitest.Tokens(callOf("get_weather", `{}`)), Finish: engine.FinishStop}}); strings.Contains(reply, "tool_use") {
		t.Errorf("the client sees %s", reply)
	}

	back := conversation(userHi+`,`+changing(removal(named("get_weather")))+`,`+userHi+`,`+changing(addition(named("get_weather"))), changedList)
	if message := s.play(t, back, callOf("get_weather", `{}`)); message.Get("content.0.name").Str != "get_weather" {
		t.Errorf("a tool that is back: %s", message.Raw)
	}

	// Of a grammar it is no part, and the other tools are not narrowed.
	other := `,"tools":[{"name":"get_weather","strict":true,"input_schema":{"type":"object"}},{"name":"g","input_schema":{}}]`
	if c := mustDecode(t, conversation(userHi+`,`+changing(removal(named("get_weather"))), other)).Engine().Constraint; c != nil {
		t.Errorf("a strict tool that was withdrawn has a grammar: %v", c)
	}
}

// TestToolChangesPrefix shows that no change of tools moves the prompt before it.
func TestToolChangesPrefix(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	blocks := []string{
		addition(inlineF), addition(strings.Replace(inlineF, "D.", "E.", 1)), addition(named("later")), removal(named("later")),
		addition(named("get_weather")), removal(named("get_weather")), `{"type":"text","text":"t"}`,
	}
	for range 100 {
		messages, before := userHi, ""
		for range 6 {
			shown := prompt(t, conversation(messages, changedList))
			if !strings.HasPrefix(shown, before) {
				t.Fatalf("the prompt of %s\n%s\ndoes not begin with\n%s", messages, shown, before)
			}
			before = strings.TrimSuffix(shown, "<|start|>assistant")
			some := make([]string, 1+rng.IntN(3))
			for i := range some {
				some[i] = blocks[rng.IntN(len(blocks))]
			}
			messages += `,{"role":"assistant","content":"A"},` + changing(some...) + `,` + userHi
		}
	}
}

// TestServerToolChanges shows that tools which the filter runs are withdrawn too.
func TestServerToolChanges(t *testing.T) {
	t.Parallel()
	const whole, one = `{"type":"mcp_toolset_reference","server_name":"docs"}`, `{"type":"mcp_tool_reference","server_name":"docs","name":"look.up"}`
	s := newService(t)
	call := `<|channel|>commentary to=docs.look_up <|constrain|>json<|message|>{"q":"cats"}<|call|>`
	for _, gone := range []string{whole, one} {
		message := s.play(t, conversation(userHi+`,`+changing(removal(gone)), docsServer), call, answered)
		if strings.Contains(message.Raw, "mcp_tool_use") || message.Get("stop_reason").Str != "end_turn" {
			t.Errorf("%s: %s", gone, message.Raw)
		}
		// One change of all tools is told by their namespace.
		want := map[string]string{whole: "docs<|end|>", one: "docs.look_up<|end|>"}[gone]
		if !strings.Contains(s.prompts[0], goneHere+want) {
			t.Errorf("%s: the prompt is\n%s", gone, s.prompts[0])
		}
		message = s.play(t, conversation(userHi+`,`+changing(removal(gone))+`,`+changing(addition(whole)), docsServer), call, answered)
		if message.Get("content.0.type").Str != "mcp_tool_use" {
			t.Errorf("%s, and back: %s", gone, message.Raw)
		}
	}
	message := s.play(t, conversation(userHi+`,`+changing(removal(named("web_search"))), searchTools), searchCall, answered)
	if strings.Contains(message.Raw, `"type":"server_tool_use"`) {
		t.Errorf("the search runs: %s", message.Raw)
	}
	for _, unknown := range []string{`{"type":"mcp_toolset_reference","server_name":"x"}`, `{"type":"mcp_tool_reference","server_name":"docs","name":"x"}`} {
		if _, err := s.try(t, conversation(userHi+`,`+changing(removal(unknown)), docsServer)); err == nil || err.Code != "tool_reference_unresolved" {
			t.Errorf("%s: %v", unknown, err)
		}
	}
}
