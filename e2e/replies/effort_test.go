package replies

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// effortUpdates are requests of each API whose conversation lowers the effort, or does not yet.
var effortUpdates = map[string]struct {
	body, update string
	// Of a reply: its tokens of reasoning.
	reasoning string
}{
	"/v1/chat/completions": {
		`"messages":[{"role":"user","content":%q},{"role":"assistant","content":"yes"},%s{"role":"user","content":%q}]`,
		`{"role":"system","output_config":{"effort":"low"}},`,
		"usage.completion_tokens_details.reasoning_tokens",
	},
	"/v1/responses": {
		`"input":[{"role":"user","content":%q},{"role":"assistant","content":"yes"},%s{"role":"user","content":%q}]`,
		`{"type":"configuration_update","reasoning":{"effort":"low"}},`,
		"usage.output_tokens_details.reasoning_tokens",
	},
	"/v1/messages": {
		`"max_tokens":1000,"messages":[{"role":"user","content":%q},{"role":"assistant","content":"yes"},%s{"role":"user","content":%q}]`,
		`{"role":"system","output_config":{"effort":"low"}},`,
		"usage.output_tokens_details.thinking_tokens",
	},
}

// startEfforts starts a stack with a model of each setting: SGLang's has the default.
func startEfforts(t *testing.T) *stack.Dataplane {
	t.Helper()
	return stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.ModelDefaults.Reasoning.BudgetLow = 20
		c.Models[0].EffortUpdates = "keep_prefix"
	}})
}

// A conversation lowers the effort, in every API. The default is exact: the prompt breaks at its
// head, and the log line says why. With keep_prefix the engine has the prompt in its cache, and
// the budget of the lower effort ends the reasoning.
func TestEffortUpdates(t *testing.T) {
	d := startEfforts(t)
	long := strings.Repeat("We talk about many things. ", 60)
	requests := 0
	for path, c := range effortUpdates {
		for _, model := range stack.HarmonyModels {
			ask := func(update, script string) (object, line string) {
				requests++
				// Envoy writes into ids that are longer.
				id := fmt.Sprint("effort", requests)
				body := fmt.Sprintf(`{"model":%q,`, model) + fmt.Sprintf(c.body, long, update, script) + "}"
				object = d.Answer(t, path, body, "x-request-id", id, "session-id", path+model)
				return object, d.RequestLine(t, " request_id="+id+" ")
			}

			ask("", "NOTHINK\nSAY yes")
			// The first text is the same, so the conversation goes on from its second message.
			object, line := ask(c.update, endlessReasoning)
			if got := gjson.Get(object, c.reasoning).Int(); got != 20 {
				t.Errorf("%s, %s: %d tokens of reasoning: %s", path, model, got, object)
			}

			keeps := model == stack.VLLMModel
			if broken := strings.Contains(line, "prefix_broken=effort"); broken == keeps {
				t.Errorf("%s, %s: %s", path, model, line)
			}
		}
	}
}

// The items of openai-python's own types change the effort, in Responses and in Chat.
func TestEffortUpdatesPython(t *testing.T) {
	if _, err := os.Stat(stack.Python); err != nil {
		t.Skipf("%v; run \"make venv\"", err)
	}
	d := startEfforts(t)
	cmd := exec.CommandContext(t.Context(), stack.Python, "python/effort_updates.py")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+d.URL+"/v1", "OPENAI_API_KEY=none",
		"EXACT="+stack.SGLangModel, "KEEPS="+stack.VLLMModel, "ENDLESS="+endlessReasoning, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
