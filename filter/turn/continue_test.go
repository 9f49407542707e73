package turn

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func spell(t *testing.T, prompt []harmony.Token) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestContinue shows that the next turn of a reply has the prompt of a request with
// all items, and requires no call.
func TestContinue(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	items := []Item{{Kind: User, Text: "hi"}}
	since := []Item{
		{Kind: Reasoning, Text: "I look."},
		{Kind: Call, CallID: "call_1", Namespace: FunctionsNamespace, Name: "look", Text: "{}"},
		{Kind: Result, CallID: "call_1", Text: "seen", Hosted: true},
	}

	in := func(items []Item, required bool) *Input {
		return &Input{
			Items: items, Choice: Choice{Required: required}, Strict: map[ToolName]bool{{Namespace: FunctionsNamespace, Name: "look"}: true},
			Tools:    []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "look"}}}},
			Builtins: []harmony.Namespace{harmony.BrowserNamespace()},
		}
	}

	first := prepare(t, rc, in(items, true))
	next, err := first.Continue(t.Context(), since, 7)
	if err != nil {
		t.Fatal(err)
	}

	want := prepare(t, rc, in(slices.Concat(items, since), false))
	if got, want := spell(t, next.Engine.Prompt), spell(t, want.Engine.Prompt); got != want {
		t.Errorf("the prompt is\n%s, want\n%s", got, want)
	}

	format := func(turn *Turn) string { return string(constraint.AppendStructuralTag(nil, turn.Engine.Constraint)) }
	if format(first) == format(next) || format(next) != format(want) || !strings.Contains(format(next), "browser.") {
		t.Errorf("the constraint is\n%s, want\n%s", format(next), format(want))
	}

	_, err = next.NewReader(func(Event) {}).Push(&engine.Chunk{
		Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>done<|return|>"), Finish: engine.FinishStop,
	})
	if next.Engine.MaxTokens != 7 || err != nil {
		t.Errorf("%d tokens, without a call: %v", next.Engine.MaxTokens, err)
	}

	last, err := next.Continue(t.Context(), []Item{{Kind: Call, CallID: "call_2", Name: "look", Text: "{}"}, {Kind: Result, CallID: "call_2", Text: "again"}}, 0)
	if err != nil || !strings.HasPrefix(spell(t, last.Engine.Prompt), strings.TrimSuffix(spell(t, next.Engine.Prompt), "<|start|>assistant")) {
		t.Errorf("the third turn: %v, %s", err, spell(t, last.Engine.Prompt))
	}
}
