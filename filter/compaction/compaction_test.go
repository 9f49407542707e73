package compaction_test

import (
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestAsk shows what the model is told that remains.
func TestAsk(t *testing.T) {
	t.Parallel()
	for kept, want := range map[string]string{
		"":                      "will know only this summary and the instructions.\n",
		compaction.KeptMessages: "will know only this summary, the instructions and, if they are not long, the last of my own messages.\n",
	} {
		if got := compaction.Ask(kept); !strings.Contains(got, want) || !strings.HasSuffix(got, "Write the summary only.") {
			t.Errorf("%q: %s", kept, got)
		}
	}
}

// TestSummary shows which text of an output is the summary, and when there is none.
func TestSummary(t *testing.T) {
	t.Parallel()
	event := func(kind turn.Kind, text string) turn.Event {
		return turn.Event{Step: turn.Delta, Kind: kind, Text: []byte(text)}
	}
	for name, c := range map[string]struct {
		events []turn.Event
		finish turn.Finish
		want   string
		failed string
	}{
		"an answer":             {[]turn.Event{event(turn.Reasoning, "Hm."), event(turn.Answer, " a"), event(turn.Answer, "b\n")}, turn.FinishStop, "ab", ""},
		"an answer behind":      {[]turn.Event{event(turn.Preamble, "p"), event(turn.Answer, "a")}, turn.FinishStop, "a", ""},
		"a preamble alone":      {[]turn.Event{event(turn.Preamble, "p")}, turn.FinishStop, "p", ""},
		"nothing":               {[]turn.Event{event(turn.Reasoning, "Hm."), {Step: turn.End, Kind: turn.Answer}}, turn.FinishStop, "", "no summary"},
		"a summary that is cut": {[]turn.Event{event(turn.Answer, "a")}, turn.FinishLength, "", "wrote 7 tokens. Raise max_tokens"},
	} {
		var s compaction.Summary
		for _, e := range c.events {
			s.Event(e)
		}
		text, err := s.Text(c.finish, "max_tokens", 7)
		if text != c.want || (err == nil) != (c.failed == "") || err != nil && (!strings.Contains(err.Message, c.failed) || err.Code != compaction.Code) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestShorten shows which part of a text is left out, between whole characters.
func TestShorten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		size int
		want string
	}{
		{"abcd", 4, "abcd"},
		{"abcdefgh", 4, "ab\n[4 bytes are left out here]\ngh"},
		{"éééé", 3, "\n[8 bytes are left out here]\n"},
		{"\x80\x80\x80\x80", 2, "\n[4 bytes are left out here]\n"},
		{"abc", 0, "\n[3 bytes are left out here]\n"},
		{"aé😀éa", 6, "aé\n[4 bytes are left out here]\néa"},
	} {
		if got := compaction.Shorten(c.text, c.size); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.text, c.size, got, c.want)
		}
	}
}

// TestPrepareEndsConversations: an engine that is told what to keep is told to release what is summarized.
func TestPrepareEndsConversations(t *testing.T) {
	t.Parallel()
	rc := &turn.RequestContext{
		Env: &turn.Env{
			Renderer: harmony.NewRenderer(), Now: time.Now, NewID: func(string) string { return "1" },
			Limits: turn.DefaultLimits(), Retention: retention.NewMemory(),
		},
		Model: &turn.Model{}, KVHints: true,
	}
	made, err := compaction.Prepare(t.Context(), rc, &turn.Input{Items: []turn.Item{{Kind: turn.User, Text: compaction.Ask("")}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range made.Engine.Retention.Directives {
		if d.Priority != retention.Released {
			t.Errorf("%+v", d)
		}
	}
}
