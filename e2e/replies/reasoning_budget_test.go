package replies

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// endlessReasoning is reasoning without an end. Where somebody else ends it, an answer
// follows, or a call where the model may choose.
const (
	endlessReasoning = "@@<channel>analysis<message><loop>@@The answer is 42.<return>@@"
	endlessThenCall  = "@@<channel>analysis<message><loop>@@<channel>commentary to=functions.look<message>{}<call>@@"
)

// budgeted is a request of an API with a budget of 20 tokens.
var budgeted = map[string]string{
	"/v1/chat/completions": `"thinking_token_budget":20,"messages":[{"role":"user","content":%q}]`,
	"/v1/responses":        `"reasoning":{"max_tokens":20},"input":%q`,
	"/v1/messages":         `"max_tokens":1000,"thinking":{"type":"adaptive"},"thinking_token_budget":20,"messages":[{"role":"user","content":%q}]`,
}

// askText posts a request, and returns the whole reply.
func askText(t *testing.T, d *stack.Dataplane, path, fields string, content any) string {
	t.Helper()
	return d.Answer(t, path, "{"+fmt.Sprintf(fields, content)+"}")
}

// Reasoning without an end is ended at its budget, in every API, and an answer follows.
// The counts have each token once.
func TestReasoningBudget(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for path, fields := range budgeted {
		for _, model := range stack.HarmonyModels {
			stream := askText(t, d, path, fmt.Sprintf(`"model":%q,"stream":true,`, model)+fields, endlessReasoning)
			if got := saidText(stream); got != "The answer is 42." {
				t.Errorf("%s, %s: a stream says %q:\n%s", path, model, got, stream)
			}

			object := askText(t, d, path, fmt.Sprintf(`"model":%q,`, model)+fields, endlessReasoning)
			want := map[string]map[string]string{
				"/v1/chat/completions": {"choices.0.message.content": "The answer is 42.", "choices.0.finish_reason": "stop", "usage.completion_tokens_details.reasoning_tokens": "20"},
				"/v1/responses":        {"status": "completed", "output.0.status": "incomplete", "output.1.content.0.text": "The answer is 42.", "usage.output_tokens_details.reasoning_tokens": "20"},
				"/v1/messages":         {"content.0.type": "thinking", "content.1.text": "The answer is 42.", "stop_reason": "end_turn", "usage.output_tokens_details.thinking_tokens": "20"},
			}[path]

			for name, value := range want {
				if got := gjson.Get(object, name).String(); got != value {
					t.Errorf("%s, %s: %s is %q, want %q: %s", path, model, name, got, value, object)
				}
			}

			// 3 tokens of a header, 20 of reasoning, 6 that end it, and the answer's
			output := gjson.Get(object, "usage.completion_tokens").Int() + gjson.Get(object, "usage.output_tokens").Int()
			if answer := output - 3 - 20 - 6; answer < 5 || answer > 9 {
				t.Errorf("%s, %s: %d tokens of output: %s", path, model, output, object)
			}
		}
	}
}

// With tools the model chooses what follows its reasoning; with a required call that is
// one, by the engine's grammar.
func TestReasoningBudgetAndTools(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	const tool = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{}}}}],`
	for _, choice := range []string{"auto", "required"} {
		object := askText(t, d, "/v1/chat/completions", fmt.Sprintf(`"model":%q,"tool_choice":%q,`, stack.VLLMModel, choice)+tool+budgeted["/v1/chat/completions"], endlessThenCall)
		if got := gjson.Get(object, "choices.0.message.tool_calls.0.function.name").Str; got != "look" || gjson.Get(object, "choices.0.finish_reason").Str != "tool_calls" {
			t.Errorf("tool_choice %s: %s", choice, object)
		}
	}
}

// Budgets of the configuration hold for models, efforts and tenants; what is left of an
// output's limit is reserved for the answer; a repetition ends.
func TestConfiguredReasoningBudget(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.TenantHeader = "x-tenant"
		c.ModelDefaults.Reasoning = config.Reasoning{Budget: 50, BudgetLow: 10}
		c.ReasoningBudgets = []config.ReasoningBudget{{Tenant: "small", Tokens: 5}}
		c.Models[0].Reasoning = config.Reasoning{Budget: 100_000, BudgetLow: 100_000, ReserveFinalTokens: 30}
	}})

	for name, c := range map[string]struct {
		fields, tenant string
		reasoning      int64
	}{
		"model":   {`"model":"` + stack.SGLangModel + `"`, "any", 50},
		"effort":  {`"model":"` + stack.SGLangModel + `","reasoning_effort":"low"`, "any", 10},
		"tenant":  {`"model":"` + stack.SGLangModel + `","reasoning_effort":"low"`, "small", 5},
		"request": {`"model":"` + stack.SGLangModel + `","reasoning":{"max_tokens":7}`, "any", 7},
		"reserve": {`"model":"` + stack.VLLMModel + `","max_tokens":100`, "any", 67},
	} {
		body := fmt.Sprintf(`{%s,"messages":[{"role":"user","content":%q}]}`, c.fields, endlessReasoning)
		resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), "x-tenant", c.tenant)
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		object := string(text)
		if got := gjson.Get(object, "usage.completion_tokens_details.reasoning_tokens").Int(); got != c.reasoning || gjson.Get(object, "choices.0.message.content").Str != "The answer is 42." {
			t.Errorf("%s: %d tokens of reasoning, want %d: %s", name, got, c.reasoning, object)
		}
	}
}

// Disaggregated engines are interrupted, and so are responses in the background.
func TestReasoningBudgetElsewhere(t *testing.T) {
	log := &stack.LogFile{}
	p := stack.NewParts(t, log)
	d := stack.Start(t, stack.Options{Config: p.Serve(t)})
	for _, kind := range engine.Disaggregating() {
		object := askText(t, d, "/v1/responses", fmt.Sprintf(`"model":%q,"background":true,`, stack.ModelOf(kind))+budgeted["/v1/responses"], endlessReasoning)
		id := gjson.Get(object, "id").Str
		stack.Eventually(t, "the response in the background", func() bool {
			resp := d.Do(t, http.MethodGet, "/v1/responses/"+id, "", nil)
			text, _ := io.ReadAll(resp.Body)
			object = string(text)
			return gjson.Get(object, "status").Str != "queued" && gjson.Get(object, "status").Str != "in_progress"
		})
		if gjson.Get(object, "status").Str != "completed" || gjson.Get(object, "output.1.content.0.text").Str != "The answer is 42." {
			t.Errorf("%s: %s", kind, object)
		}
	}
}
