package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestReasoningSwitches shows the other names of opt-outs, which win.
func TestReasoningSwitches(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]struct {
		effort harmony.Effort
		hidden bool
		echo   string
	}{
		`"chat_template_kwargs":{"reasoning_effort":"high"}`:                             {harmony.EffortHigh, false, "high"},
		`"chat_template_kwargs":{"enable_thinking":false},"reasoning":{"effort":"high"}`: {harmony.EffortLow, true, "none"},
		`"thinking":{"type":"disabled"},"reasoning":{"effort":"high"}`:                   {harmony.EffortLow, true, "none"},
		`"reasoning":{"effort":"high","exclude":true}`:                                   {harmony.EffortHigh, true, "high"},
		`"reasoning":{"enabled":false}`:                                                  {harmony.EffortLow, true, "none"},
		`"reasoning":{"effort":"none"}`:                                                  {harmony.EffortLow, true, "none"},
		`"include_reasoning":false`:                                                      {harmony.EffortMedium, true, "medium"},
	} {
		r := mustDecode(t, ask(","+fields))
		prompt := apitest.Spell(t, r.Engine().Prompt)
		if !strings.Contains(prompt, "Reasoning: "+string(want.effort)+"\n") || r.Options.HideReasoning != want.hidden || !strings.Contains(string(r.Echo), `"reasoning":{"effort":"`+want.echo+`"`) {
			t.Errorf("%s: hidden %v\n%s\n%s", fields, r.Options.HideReasoning, r.Echo, prompt)
		}
	}
}

// TestAllowedCallers shows that a tool that only programs may call is not offered.
func TestAllowedCallers(t *testing.T) {
	t.Parallel()
	tools := func(callers string) string {
		r := mustDecode(t, ask(`,"tools":[{"type":"function","name":"f","allowed_callers":`+callers+`}]`))
		return apitest.Spell(t, r.Engine().Prompt)
	}
	if strings.Contains(tools(`["programmatic"]`), "type f") || !strings.Contains(tools(`["programmatic","direct"]`), "type f") || !strings.Contains(tools(`null`), "type f") {
		t.Error(tools(`["programmatic"]`))
	}
}

// TestSchemaBesideObject shows where other servers have the schema of an answer.
func TestSchemaBesideObject(t *testing.T) {
	t.Parallel()
	const schema = `"schema":{"type":"object","properties":{"city":{"type":"string"}}}`
	prompt := func(format string) string {
		return apitest.Spell(t, mustDecode(t, ask(`,"text":{"format":`+format+`}`)).Engine().Prompt)
	}
	if got := prompt(`{"type":"json_object",` + schema + `}`); got != prompt(`{"type":"json_schema","name":"output",`+schema+`}`) || !strings.Contains(got, "city") {
		t.Error(got)
	}
}
