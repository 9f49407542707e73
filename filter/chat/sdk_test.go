package chat

import (
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
)

// TestKnowsTheSDK shows that every field of openai-go's and openai-python's requests has a row.
func TestKnowsTheSDK(t *testing.T) {
	t.Parallel()
	opaque := map[string]string{
		"messages.content.file":        "a part of this type is a 400",
		"messages.content.input_audio": "a part of this type is a 400",
		"moderation":                   "read by turn.CheckModeration",
	}
	objects.Knows(t, openai.ChatCompletionNewParams{}, opaque)
	objects.KnowsPython(t, "openai.types.chat.completion_create_params:CompletionCreateParamsStreaming", opaque)
}

// TestKnowsDialects shows that every field of other servers has a row.
func TestKnowsDialects(t *testing.T) {
	t.Parallel()
	objects.KnowsDialects(t, "chat")
}

// TestVocabulary shows that no other name of what the API has is ignored.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	testAPI.RefusesVocabulary(t, ask(`,%s`))
	testAPI.RefusesSpellings(t, objects, ask(`,%s`))
}

// TestUnknownParts shows what becomes of content parts of other types.
func TestUnknownParts(t *testing.T) {
	t.Parallel()
	testAPI.HandlesUnknown(t, `{"model":"m","messages":[{"role":"user","content":[%s]}]}`, "messages[0].content[0]", "")
}

// TestAISDK shows that options are accepted as the AI SDK sends them to OpenAI-compatible services: in
// its own spelling, beside the API's in versions before 1.0.22, and OpenCode's key of a session.
func TestAISDK(t *testing.T) {
	t.Parallel()
	both := testAPI.MustDecode(t, ask(`,"reasoningEffort":"low","reasoning_effort":"low"`))
	if !slices.Contains(both.Ignored(), "reasoningEffort") {
		t.Errorf("ignored: %v", both.Ignored())
	}

	session := func(name string) string {
		r := testAPI.MustDecode(t, ask(`,"`+name+`":"ses_1"`))
		return r.Affinity().Session
	}
	ours, camel := session("prompt_cache_key"), session("promptCacheKey")
	if ours == "" || ours != camel {
		t.Errorf("sessions: %q, %q", ours, camel)
	}
}
