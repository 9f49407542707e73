package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestSampling shows that the engine gets every sampling parameter that it gets of a
// chat.
func TestSampling(t *testing.T) {
	t.Parallel()
	e := mustDecode(t, ask(`,"min_tokens":3,"min_p":0.25,"repetition_penalty":1.5,"logit_bias":{"5":-1},"stop_token_ids":[7],
		"top_k":4,"seed":9,"presence_penalty":0.5,"frequency_penalty":-0.5,"cache_salt":"s","priority":2,"temperature":0.5,"top_p":0.75`)).Engine()
	if e.MinTokens != 3 || *e.MinP != 0.25 || *e.RepetitionPenalty != 1.5 || e.LogitBias[5] != -1 || !slices.Equal(e.StopTokens, []harmony.Token{7}) {
		t.Errorf("not as in a chat: %+v", e)
	}
	if *e.TopK != 4 || *e.Seed != 9 || *e.PresencePenalty != 0.5 || *e.FrequencyPenalty != -0.5 || e.CacheSalt != "s" || *e.Priority != 2 || *e.Temperature != 0.5 || *e.TopP != 0.75 {
		t.Errorf("not as in a chat: %+v", e)
	}
}

// TestStop shows that a stop string ends an answer, and no reasoning.
func TestStop(t *testing.T) {
	t.Parallel()
	const thought = "<|channel|>analysis<|message|>not STOP here<|end|><|start|>assistant<|channel|>final<|message|>one STOP two"
	for fields, want := range map[string]string{
		`,"stop":"STOP"`: "one ",
		`,"stop":["x","STOP"],"include_stop_str_in_output":true`: "one STOP",
	} {
		got := reply(t, fields, thought, engine.FinishStop)
		if text := got.Get("output.1.content.0.text").Str; text != want || got.Get("status").Str != "completed" {
			t.Errorf("%s: %q, %s", fields, text, got.Get("status"))
		}
		if text := got.Get("output.0.content.0.text").Str; !strings.Contains(text, "STOP here") {
			t.Errorf("%s: reasoning %q", fields, text)
		}
	}
}

// TestStopIsTheAnswer shows that a response whose stop string removes the whole answer
// is completed, with one message without text.
func TestStopIsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"<|channel|>final<|message|>STOP two", "STOP two"} {
		got := reply(t, `,"stop":"STOP"`, output, engine.FinishStop)
		if text := got.Get("output.0.content.0.text"); got.Get("status").Str != "completed" || got.Get("output.#.type").Raw != `["message"]` || !text.Exists() || text.Str != "" {
			t.Errorf("%s: %s", output, got)
		}
	}
}
