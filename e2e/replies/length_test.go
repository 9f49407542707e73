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

// Load generators ask for outputs of one length by ignore_eos, in every API and on
// every kind of engine.
func TestIgnoreEOS(t *testing.T) {
	const llamaModel = "gpt-oss-llama"
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Engines = append(c.Engines, config.Engine{Kind: "llamacpp", URLs: c.Engines[0].URLs})
		c.Models = append(c.Models, config.Model{Match: "=" + llamaModel, Engine: "llamacpp"})
	}})

	const length, prompt = 40, `NOTHINK\nSAY hello`
	for _, api := range []struct{ path, body, limit, tokens, ending, end string }{
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"` + prompt + `"}]`, "max_tokens", "usage.completion_tokens", "choices.0.finish_reason", "length"},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"` + prompt + `"}]`, "max_completion_tokens", "usage.completion_tokens", "choices.0.finish_reason", "length"},
		{"/v1/responses", `"input":"` + prompt + `"`, "max_output_tokens", "usage.output_tokens", "incomplete_details.reason", "max_output_tokens"},
		{"/v1/messages", `"messages":[{"role":"user","content":"` + prompt + `"}]`, "max_tokens", "usage.output_tokens", "stop_reason", "max_tokens"},
	} {
		ask := func(model, more string) (int, string) {
			resp := d.Do(t, http.MethodPost, api.path, "application/json", strings.NewReader(fmt.Sprintf(`{"model":%q,%s,"ignore_eos":true%s}`, model, api.body, more)))
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}

		limited := fmt.Sprintf(`,%q:%d`, api.limit, length)
		for _, model := range []string{stack.VLLMModel, stack.SGLangModel, llamaModel} {
			status, text := ask(model, limited)
			if status != http.StatusOK || gjson.Get(text, api.tokens).Int() != length || gjson.Get(text, api.ending).Str != api.end || !strings.Contains(text, `"hello`) {
				t.Errorf("%s of %s: status %d: %s", api.path, model, status, text)
			}
		}
		if _, text := ask(stack.VLLMModel, limited+`,"stream":true,"stream_options":{"include_usage":true}`); !strings.Contains(text, fmt.Sprintf(`_tokens":%d`, length)) {
			t.Errorf("%s, streamed: %s", api.path, text)
		}
		if status, text := ask(stack.VLLMModel, ""); status != http.StatusBadRequest || !strings.Contains(text, api.limit) && api.limit != "max_tokens" {
			t.Errorf("%s without a limit: status %d: %s", api.path, status, text)
		}
	}
}
