package messages

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

func TestResultsInAnyOrder(t *testing.T) {
	t.Parallel()
	const calls = `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_a","name":"f","input":{}},{"type":"tool_use","id":"toolu_b","name":"g","input":{}},{"type":"tool_use","id":"toolu_c","name":"f","input":{}}]}`
	apitest.AnyOrder(t,
		`{"type":"tool_result","tool_use_id":"toolu_a","content":"of first"}`,
		`{"type":"tool_result","tool_use_id":"toolu_b","content":"of other"}`,
		`{"type":"tool_result","tool_use_id":"toolu_c","content":[{"type":"text","text":"of last"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}`,
		func(results ...string) string {
			return prompt(t, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"},`+calls+`,{"role":"user","content":[`+strings.Join(results, ",")+`,{"type":"text","text":"Go on."}]}]}`)
		})
}
