package chat

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

func TestResultsInAnyOrder(t *testing.T) {
	t.Parallel()
	const calls = `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"g"}},{"id":"c","function":{"name":"f"}}]}`
	apitest.AnyOrder(t,
		`{"role":"tool","tool_call_id":"a","content":"of first"}`,
		`{"role":"tool","tool_call_id":"b","content":"of other"}`,
		`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"of last"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`,
		func(results ...string) string {
			body := `{"model":"m","messages":[{"role":"user","content":"Hi"},` + calls + "," + strings.Join(results, ",") + `]}`
			return apitest.Spell(t, mustDecode(t, body).Engine().Prompt)
		})
}
