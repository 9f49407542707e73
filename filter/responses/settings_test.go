package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestSettings shows what the operator can set for all responses.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.UsagePerTurn = true
	model := *s.rc.Model
	model.ReasoningEvents = turn.EventsReasoning
	s.rc.Model = &model
	request, err := s.decode([]byte(ask(`,"stream":true`)), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	events := run(t, request, apitest.Said("<|channel|>analysis<|message|>think<|end|><|start|>assistant"+said).Chunks(apitest.Size(1)))
	for _, kind := range []string{"response.reasoning.delta", "response.reasoning.done", "input_tokens_per_turn"} {
		if !strings.Contains(events, kind) {
			t.Errorf("no %s in\n%s", kind, events)
		}
	}
	if strings.Contains(events, "response.reasoning_text.") {
		t.Errorf("both names in\n%s", events)
	}
}
