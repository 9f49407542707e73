package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestReasoningMembers shows that a response says which reasoning the model sees and
// how it reasons, and that another context is listed as ignored.
func TestReasoningMembers(t *testing.T) {
	t.Parallel()
	for sent, c := range map[string]struct{ context, mode, ignored string }{
		`{}`:                         {},
		`{"context":"auto"}`:         {context: "current_turn"},
		`{"context":"current_turn"}`: {context: "current_turn"},
		`{"context":"all_turns"}`:    {context: "current_turn", ignored: "reasoning.context"},
		`{"mode":"standard"}`:        {mode: "standard"},
	} {
		members := `,"reasoning":` + sent
		got := reply(t, members, said, "stop").Get("reasoning")
		if got.Get("context").Str != c.context || got.Get("mode").Str != c.mode {
			t.Errorf("%s: %s", sent, got.Raw)
		}
		if ignored := mustDecode(t, ask(members)).Ignored(); !slices.Equal(ignored, strings.Fields(c.ignored)) {
			t.Errorf("%s: ignored %v", sent, ignored)
		}
	}

	_, err := (&API{}).decode([]byte(ask(`,"reasoning":{"mode":"pro"}`)), apitest.NewContext())
	if err == nil || err.Status != 400 || err.Param != "reasoning.mode" {
		t.Error(err)
	}
}

// TestModeration shows that a request which wants texts blocked is refused.
func TestModeration(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"input", "output"} {
		_, err := (&API{}).decode([]byte(ask(`,"moderation":{"model":"m","policy":{"`+side+`":{"mode":"block"}}}`)), apitest.NewContext())
		if err == nil || err.Status != 400 || err.Param != "moderation.policy."+side+".mode" {
			t.Errorf("%s: %v", side, err)
		}
	}
	if got := mustDecode(t, ask(`,"moderation":{"policy":{"input":{"mode":"score"}}}`)).Ignored(); !slices.Equal(got, []string{"moderation"}) {
		t.Errorf("ignored %v", got)
	}
}

// TestRevisedPrompt shows that a picture has the prompt that the model wrote for it.
func TestRevisedPrompt(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{`{"prompt":"a \"cat\""}`: `"a \"cat\""`, `{}`: ``, `{"prompt":7}`: ``} {
		for _, stream := range []string{"", `,"stream":true`} {
			got := newBuiltinLoop(t).play(t, `{"model":"m","input":"hi","tools":[{"type":"image_generation"}]`+stream+`}`,
				` to=image_generation.delete-all<|channel|>commentary json<|message|>`+arguments+`<|call|>`, doneText)
			if prompt := got.Get("output.0.revised_prompt"); prompt.Raw != want || got.Get("output.0.type").Str != "image_generation_call" {
				t.Errorf("%s: %s", arguments, gjson.Get(got.Raw, "output.0"))
			}
		}
	}
}
