//go:build engines

package engines

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// One vLLM computes the prompt, another fetches its cache and generates the reply. Both
// can do either: their connector is NixlConnector.
func TestRealPrefillVLLM(t *testing.T) {
	decode := engineAt(t, "ENGINE_TEST_VLLM_PREFILL", "vllm", metric("vllm:external_prefix_cache_hits_total"))
	prefill, _ := startSecond(t, "vllm-prefill")
	for _, kind := range []string{"vllm", "vllm-generate"} {
		t.Run(kind, func(t *testing.T) {
			decode.kind = kind
			prefillAndDecode(t, prefill, decode)
		})
	}
}

// prefillAndDecode checks replies of a pair of engines, and that the decode engine has fetched
// their prompts. Its running is the number of tokens that it has fetched.
func prefillAndDecode(t *testing.T, prefill string, decode realEngine) {
	model := stack.ModelOf(decode.kind)
	d := stack.Start(t, stack.Options{SimURL: decode.url, Config: func(c *config.Config) {
		c.Date = tinyDate
		c.Engines = []config.Engine{{Kind: decode.kind, URLs: []string{decode.url}, Prefill: []config.Prefill{{URL: prefill}}}}
		c.Models = []config.Model{{Match: "=" + model, Engine: decode.kind, UpstreamModel: tinyModel, ContextLength: tinyContext}}
	}})

	for name, more := range map[string]string{"whole": "", "streamed": `,"stream":true,"stream_options":{"include_usage":true}`} {
		t.Run(name, func(t *testing.T) {
			before := decode.running(t, decode)
			// No other prompt begins like this one: all of it has to be fetched.
			text := t.Name() + strings.Repeat(" and on", 500) + "\nTHINK Hm.\nSAY " + greeting
			resp, reply := d.Chat(t, model, text, more)

			got := gjson.Get(reply, "choices.0.message.content").Str
			if more != "" {
				got = streamedContent(nil, reply)
			}
			if resp.StatusCode != http.StatusOK || got != greeting {
				t.Errorf("%s: %s", resp.Status, reply)
			}
			if fetched := decode.running(t, decode) - before; fetched < 500 {
				t.Errorf("%d tokens were fetched", fetched)
			}
		})
	}
}
