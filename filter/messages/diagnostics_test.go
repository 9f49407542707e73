package messages

import (
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestReadDiagnostics has what clients may ask for.
func TestReadDiagnostics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, fields, diagnostics, ignored, param string }{
		{"none", ``, ``, "", ""},
		{"null", `,"diagnostics":null`, ``, "", ""},
		{"empty", `,"diagnostics":{}`, `null`, "", ""},
		{"the first turn", `,"diagnostics":{"previous_message_id":null}`, `null`, "", ""},
		{"an unknown message", `,"diagnostics":{"previous_message_id":"msg_x"}`, `{"cache_miss_reason":{"type":"previous_message_not_found"}}`, "", ""},
		{"an unknown member", `,"diagnostics":{"verbose":true}`, `null`, "diagnostics.verbose", ""},
		{"no object", `,"diagnostics":true`, ``, "", "diagnostics"},
		{"no id", `,"diagnostics":{"previous_message_id":5}`, ``, "", "diagnostics.previous_message_id"},
		{"a long id", `,"diagnostics":{"previous_message_id":"` + strings.Repeat("x", 300) + `"}`, ``, "", "diagnostics.previous_message_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc := &turn.RequestContext{Model: &turn.Model{}, Env: &turn.Env{
				Renderer: harmony.NewRenderer(), Now: time.Now, NewID: func(prefix string) string { return prefix + "0" },
				Limits: turn.DefaultLimits(), Prompts: diagnosis.NewPrompts(1 << 20),
			}}
			request, err := (&API{}).Decode(t.Context(), []byte(`{"model":"gpt-oss-20b","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]`+c.fields+`}`), rc)
			if c.param != "" || err != nil {
				if err == nil || err.Param != c.param {
					t.Errorf("%v", err)
				}
				return
			}
			if got := strings.Join(request.Ignored(), ","); got != c.ignored {
				t.Errorf("ignored: %s", got)
			}
			object := answer(t, request, "<|channel|>final<|message|>Hi<|return|>", engine.FinishStop)
			if got := gjson.Get(object, "diagnostics").Raw; got != c.diagnostics {
				t.Errorf("%s, want %s", got, c.diagnostics)
			}
		})
	}
}
