package operations

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// A rendered request has as many tokens as its model call, whatever its length.
func TestRender(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for path, c := range map[string]struct{ field, usage string }{
		"/v1/chat/completions": {"messages", "usage.prompt_tokens"},
		"/v1/responses":        {"input", "usage.input_tokens"},
	} {
		ask := func(model, text string) string {
			return fmt.Sprintf(`{"model":%q,%q:[{"role":"user","content":%q}]}`, model, c.field, text)
		}

		for _, model := range stack.HarmonyModels {
			body := ask(model, "SAY Grüße, 世界 👋🏽!")
			status, rendered := d.Post(t, path+"/render", body)
			_, reply := d.Post(t, path, body)
			if n := rendered.Get("token_count").Int(); status != http.StatusOK || n == 0 || n != reply.Get(c.usage).Int() || n != rendered.Get("token_ids.#").Int() {
				t.Errorf("%s of %s: status %d, %d tokens, the usage says %s", path, model, status, n, reply.Get(c.usage))
			}
		}

		const words = 1_000_000 // a reply of several megabytes
		status, rendered := d.Post(t, path+"/render", ask(stack.VLLMModel, strings.Repeat(" word", words)))
		if n := rendered.Get("token_ids.#").Int(); status != http.StatusOK || n < words || strings.Count(rendered.Get("text").Str, " word") != words {
			t.Errorf("a long prompt of %s: status %d, %d tokens, %.200s", path, status, n, rendered.Raw)
		}

		if status, _ := d.Post(t, path+"/render", ask(stack.OtherModel, "x")); status != http.StatusNotFound {
			t.Errorf("%s of another model: status %d, not the upstream's", path, status)
		}
	}
}
