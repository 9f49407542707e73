package write

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestCacheDiagnostics(t *testing.T) {
	t.Parallel()
	found := func(cause diagnosis.Cause) diagnosis.Finding {
		return diagnosis.Finding{Known: true, Cause: cause, Shared: 1024, Lost: 96}
	}
	elsewhere := found(diagnosis.None)
	elsewhere.Elsewhere, elsewhere.Lost = true, 0
	miss := func(reason string) string {
		return `{"type":"cache_miss","reason":"` + reason + `","cache_missed_tokens":96,"comparison_reusable_tokens":1024}`
	}
	const hit, unavailable = `{"type":"cache_hit"}`, `{"type":"unavailable"}`
	for _, c := range []struct {
		name string
		d    *turn.Diagnosis
		want string
	}{
		{"nothing is compared", nil, unavailable},
		{"the response is not known", &turn.Diagnosis{Cached: 1024}, `{"type":"comparison_response_not_found"}`},
		{"it goes on, and is cached", &turn.Diagnosis{Reply: found(diagnosis.None), Cached: 1024}, hit},
		{"it goes on, and the engine has lost it", &turn.Diagnosis{Reply: found(diagnosis.None), Cached: 0}, unavailable},
		{"it goes on, and the engine reports nothing", &turn.Diagnosis{Reply: found(diagnosis.None), Cached: -1}, unavailable},
		{"it goes on in another session", &turn.Diagnosis{Reply: elsewhere, Cached: 1024}, hit},
		{"it goes on in another session, at another replica", &turn.Diagnosis{Reply: elsewhere, Cached: 24}, `{"type":"cache_miss","reason":"prompt_cache_key_changed","cache_missed_tokens":1000,"comparison_reusable_tokens":1024}`},
		{"model", &turn.Diagnosis{Reply: found(diagnosis.Model), Cached: 1024}, miss("model_changed")},
		{"cache_salt", &turn.Diagnosis{Reply: found(diagnosis.Salt), Cached: 1024}, unavailable},
		{"system", &turn.Diagnosis{Reply: found(diagnosis.System), Cached: 1024}, unavailable},
		{"date", &turn.Diagnosis{Reply: found(diagnosis.Date), Cached: 1024}, unavailable},
		{"effort", &turn.Diagnosis{Reply: found(diagnosis.Effort), Cached: 1024}, miss("reasoning_effort_changed")},
		{"instructions", &turn.Diagnosis{Reply: found(diagnosis.Instructions), Cached: 1024}, miss("input_changed")},
		{"tools", &turn.Diagnosis{Reply: found(diagnosis.Tools), Cached: 1024}, miss("tools_changed")},
		{"tools in another order, and the engine has lost the rest", &turn.Diagnosis{Reply: found(diagnosis.ToolsReordered), Cached: 0}, miss("tools_changed")},
		{"format", &turn.Diagnosis{Reply: found(diagnosis.Format), Cached: -1}, miss("text_format_changed")},
		{"compacted", &turn.Diagnosis{Reply: found(diagnosis.Compacted), Cached: 1024}, miss("context_compacted")},
		{"truncated", &turn.Diagnosis{Reply: found(diagnosis.Truncated), Cached: 1024}, miss("context_compacted")},
		{"reasoning", &turn.Diagnosis{Reply: found(diagnosis.Reasoning), Cached: 1024}, unavailable},
		{"lost reasoning", &turn.Diagnosis{Reply: found(diagnosis.ReasoningLost), Cached: 1024}, unavailable},
		{"history", &turn.Diagnosis{Reply: found(diagnosis.History), Cached: 1024}, miss("input_changed")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, want := string(appendCacheDiagnostics(nil, c.d)), `,"prompt_cache_diagnostics":`+c.want; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
