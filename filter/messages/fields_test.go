package messages

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestFieldsAreHandled shows that every field does what its row says.
func TestFieldsAreHandled(t *testing.T) {
	t.Parallel()
	turns := func(call, result string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}` + call + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"` + result + `}]}]}`
	}
	testAPI(t).Handles(t, objects, map[string]string{
		"":                              ask(`,%s`),
		"messages":                      `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi",%s}]}`,
		"messages.content[tool_use]":    turns(`,%s`, ``),
		"messages.content[tool_result]": turns(``, `,%s`),
		"thinking":                      ask(`,"thinking":{"type":"adaptive",%s}`),
		"messages.output_config":        `{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"system","content":"a","output_config":{%s}}]}`,
		"output_config":                 ask(`,"output_config":{%s}`),
		"compaction":                    ask(`,"compaction":{"type":"summarize",%s}`),
		"container":                     ask(`,"container":{%s}`),
		"metadata":                      ask(`,"metadata":{%s}`),
		"tools":                         ask(`,"tools":[{"name":"f","input_schema":{},%s}]`),
		"tool_choice":                   ask(`,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto",%s}`),
		"chat_template_kwargs":          ask(`,"chat_template_kwargs":{%s}`),
	})
}

// TestReasoningSwitches shows the names that clients of other servers have for an effort and
// an opt-out.
func TestReasoningSwitches(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]struct {
		effort   string
		thinking visibility
	}{
		`"thinking":{"type":"adaptive"},"reasoning_effort":"high"`:                        {"high", shown},
		`"chat_template_kwargs":{"reasoning_effort":"high"}`:                              {"high", hidden},
		`"thinking":{"type":"adaptive"},"chat_template_kwargs":{"enable_thinking":false}`: {"low", hidden},
		`"enable_thinking":false,"output_config":{"effort":"high"}`:                       {"low", hidden},
		`"thinking":{"type":"enabled","budget_tokens":2000},"include_reasoning":false`:    {"medium", hidden},
	} {
		r := mustDecode(t, ask(","+fields))
		prompt := apitest.Spell(t, r.Engine().Prompt)
		if !strings.Contains(prompt, "Reasoning: "+want.effort+"\n") || r.options.thinking != want.thinking {
			t.Errorf("%s: %v\n%s", fields, r.options.thinking, prompt)
		}
	}
}
