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
)

// An error about a prompt that is too long has the length that counting the same prompt
// gives: clients drop as much as is too much, and ask again.
func TestLengthOfLongPrompts(t *testing.T) {
	const context = 4000
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Models = append([]config.Model{{Match: "=" + stack.VLLMModel, Engine: "vllm", ContextLength: context}}, c.Models[1:]...)
	}})
	post := func(path, body string) string {
		resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(`{"model":"`+stack.VLLMModel+`",`+body+`}`))
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	for _, words := range []int{context, 2 * context, 10 * context} {
		// Many messages, and one long one at the end.
		turn := `{"role":"user","content":"` + strings.Repeat("some words ", 50) + `"},{"role":"assistant","content":"yes"},`
		messages := strings.Repeat(turn, words/100) + `{"role":"user","content":"` + strings.Repeat("word ", words) + `"}`
		for _, api := range []struct{ path, field, more, counter, count, param string }{
			{"/v1/chat/completions", "messages", "", "/v1/chat/completions/render", "token_ids.#", "messages"},
			{"/v1/responses", "input", "", "/v1/responses/input_tokens", "input_tokens", "messages"},
			{"/v1/messages", "messages", `,"max_tokens":100`, "/v1/messages/count_tokens", "input_tokens", ""},
		} {
			body := fmt.Sprintf(`%q:[%s]`, api.field, messages)
			counted := post(api.counter, body)
			tokens := gjson.Get(counted, api.count).Int()
			want := fmt.Sprintf("maximum context length is %d tokens. However, your messages resulted in %d tokens.", context, tokens)
			if api.param == "" {
				want = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", tokens, context)
			}
			if text := post(api.path, body+api.more); tokens <= context || !strings.Contains(gjson.Get(text, "error.message").Str, want) {
				t.Errorf("%s: counted %.100s, refused as %s", api.path, counted, text)
			}
		}
	}
}
