package responses

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

// TestToolCalls counts calls that are made, and accesses to servers that fail.
func TestToolCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dead         bool
		outputs      []string
		made, failed int
	}{
		"calls":           {outputs: []string{searchCall("a"), ` to=docs.delete-all<|channel|>commentary json<|message|>{}<|call|>`, doneText}, made: 2, failed: 1},
		"a limit":         {outputs: []string{searchCall("a"), searchCall("b"), searchCall("c"), doneText}, made: 2},
		"no list":         {dead: true, outputs: []string{doneText}, failed: 1},
		"an unknown tool": {outputs: []string{` to=functions.nothing<|channel|>commentary json<|message|>{}<|call|>`, doneText}},
	} {
		l := newLoop(t)
		l.dead = c.dead
		request, err := l.api.decode([]byte(`{"model":"m","input":"hi","max_tool_calls":2,`+docsTool+`}`), l.rc)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(request, api.Loop)
		if _, err := l.reply(t, r, c.outputs...); err != nil {
			t.Fatal(err)
		}
		if made, failed := r.ToolCalls(); made != c.made || failed != c.failed {
			t.Errorf("%s: %d calls, %d failures, want %d and %d", name, made, failed, c.made, c.failed)
		}
	}
}
