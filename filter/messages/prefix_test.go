package messages

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// TestPrefix shows that each prompt of a tool turn begins with the prompt before,
// whatever the model writes before its calls, whether the client sends the thinking
// back, and what else it puts beside the results.
func TestPrefix(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	some := func(texts ...string) string { return texts[rng.IntN(len(texts))] }
	for range 200 {
		rc := apitest.NewContext()
		thinking := some(``, `,"thinking":{"type":"adaptive"}`, `,"thinking":{"type":"adaptive","display":"omitted"}`, `,"thinking":{"type":"disabled"}`)
		sendsThinking := rng.IntN(3) > 0
		messages, before := userHi, ""
		for step := range 5 {
			system := `,"system":[{"type":"text","text":"` + fields.Billing + strconv.Itoa(step) + `"},{"type":"text","text":"Be terse."}]`
			request := decodeWith(t, rc, conversation(messages, weatherTool+thinking+system))
			prompt := apitest.Spell(t, request.Engine().Prompt)
			if !strings.HasPrefix(prompt, before) {
				t.Fatalf("step %d: the prompt\n%s\ndoes not begin with\n%s", step, prompt, before)
			}
			before = strings.TrimSuffix(prompt, "<|start|>assistant")
			output := some(``, thought) + some(``, "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant") + some(``, thought) + called
			var blocks []string
			id := ""
			for _, block := range gjson.Get(answer(t, request, output, engine.FinishStop), "content").Array() {
				if sendsThinking || block.Get("type").Str != "thinking" {
					blocks = append(blocks, block.Raw)
				}
				id = block.Get("id").Str // the call is the last one
			}
			messages += `,{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]},{"role":"user","content":[` +
				some(``, `{"type":"text","text":"a"},`) + `{"type":"tool_result","tool_use_id":"` + id + `","content":"sunny"}` + some(``, `,{"type":"text","text":"b"}`) + `]}` +
				some(``, `,{"role":"system","content":"c"}`)
		}
	}
}
