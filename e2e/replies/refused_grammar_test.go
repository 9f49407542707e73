package replies

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A grammar that SGLang's parser refuses is a 400 with the parser's reason, and the field that the
// grammar is of.
func TestRefusedGrammar(t *testing.T) {
	for _, kind := range []string{"sglang", "sglang-grpc"} {
		d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Engines[0].Kind = kind }})
		for param, fields := range map[string]string{
			"guided_grammar":             `,"guided_grammar":"root ::= ((("`,
			"structured_outputs.grammar": `,"structured_outputs":{"grammar":"root ::= ((("},"stream":true`,
		} {
			resp, text := d.Chat(t, stack.SGLangModel, "SAY x", fields)
			message := gjson.Get(text, "error.message").Str
			if resp.StatusCode != http.StatusBadRequest || gjson.Get(text, "error.param").Str != param ||
				!strings.Contains(message, "The engine does not take the grammar of the output: ") || strings.Contains(message, ".cc") {
				t.Errorf("%s, %s: status %d: %s", kind, param, resp.StatusCode, text)
			}
		}
	}
}
