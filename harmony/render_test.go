package harmony

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// readLines decodes the lines of a file in testdata that was created with the
// reference.
func readLines[T any](t testing.TB, name string) []T {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "reference", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []T
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if lines.Err() != nil || len(rows) == 0 {
		t.Fatalf("%s: %d lines, %v", name, len(rows), lines.Err())
	}
	return rows
}

type renderCase struct {
	Name                          string
	Conversation                  json.RawMessage
	Sound                         bool // the correct form is that of the reference
	T, Kept, Completion, Training []Token
}

func textOf(t testing.TB, tokens []Token) string {
	t.Helper()
	text, err := AppendDecode(nil, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustConversation(t testing.TB, data []byte) []Message {
	t.Helper()
	msgs, err := UnmarshalConversation(data)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

func TestRenderReference(t *testing.T) {
	exact := NewRenderer(WithReferenceSchema(), WithAnalysis(DropBeforeFirstFinal))
	keep := NewRenderer(WithReferenceSchema(), WithAnalysis(KeepAnalysis), WithCacheBytes(0))
	sound := NewRenderer(WithAnalysis(DropBeforeFirstFinal))
	for _, c := range readLines[renderCase](t, "render.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			msgs := mustConversation(t, c.Conversation)
			check := func(what string, want []Token, render func() ([]Token, error)) {
				t.Helper()
				for range 2 { // the second time from the cache
					got, err := render()
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if !cmp.Equal(want, got) {
						t.Errorf("%s (-want +got):\n%s", what, cmp.Diff(textOf(t, want), textOf(t, got)))
					}
				}
			}
			empty := []Token{}
			check("conversation", c.T, func() ([]Token, error) { return exact.AppendConversation(empty, msgs) })
			check("completion", c.Completion, func() ([]Token, error) { return exact.AppendCompletion(empty, msgs, RoleAssistant) })
			check("training", c.Training, func() ([]Token, error) { return exact.AppendTraining(empty, msgs) })
			check("analysis kept", c.Kept, func() ([]Token, error) { return keep.AppendConversation(empty, msgs) })
			if c.Sound {
				check("sound schema", c.T, func() ([]Token, error) { return sound.AppendConversation(empty, msgs) })
			}
		})
	}
}

func TestRenderRefused(t *testing.T) {
	type refused struct {
		Name         string
		Conversation json.RawMessage
	}
	for _, c := range readLines[refused](t, "refused.jsonl") {
		msgs, err := UnmarshalConversation(c.Conversation)
		if err == nil {
			_, err = NewRenderer().AppendConversation(nil, msgs)
		}
		if err == nil {
			t.Errorf("%s: no error", c.Name)
		}
	}
}

func TestRenderErrors(t *testing.T) {
	schema := func(s string) []Message {
		return []Message{{Role: RoleDeveloper, Content: []Content{&DeveloperContent{
			Tools: []Namespace{{Name: "functions", Tools: []Tool{{Name: "f", Parameters: json.RawMessage(s)}}}},
		}}}}
	}
	var wide strings.Builder // 2^30 types
	for i := range 30 {
		fmt.Fprintf(&wide, `"d%d":{"type":"object","properties":{"x":{"$ref":"#/$defs/d%d"},"y":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	exploding := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` + wide.String() + `"d30":{"type":"string"}}}`
	for _, c := range []struct {
		name string
		msgs []Message
		want string
	}{
		{"no role", []Message{{}}, `message 0: role ""`},
		{"nameless tool", []Message{{Role: RoleUser}, {Role: RoleTool}}, "message 1: a tool message needs the name of its tool"},
		{"nil content", []Message{{Role: RoleUser, Content: []Content{nil}}}, "or nil"},
		{"nil system content", []Message{{Role: RoleSystem, Content: []Content{(*SystemContent)(nil)}}}, "or nil"},
		{"misplaced", []Message{{Role: RoleUser, Content: []Content{&SystemContent{}}}}, "put it into a system message"},
		{"effort", []Message{{Role: RoleSystem, Content: []Content{&SystemContent{Effort: "max"}}}}, `effort "max": use low, medium or high`},
		{"invalid schema", schema(`{"type":`), `tool "f": its parameters are not a valid JSON Schema: the JSON ends early`},
		{"deep schema", schema(strings.Repeat(`{"type":"array","items":`, 100) + `{}` + strings.Repeat(`}`, 100)), "make them flatter"},
		{"deep JSON", schema(strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000)), "nests deeper"},
		{"exploding references", schema(exploding), "too much TypeScript"},
		{"namespace twice", []Message{{Role: RoleDeveloper, Content: []Content{&DeveloperContent{Tools: []Namespace{{Name: "a"}, {Name: "a"}}}}}}, "merge them"},
		{"response format", []Message{{Role: RoleDeveloper, Content: []Content{&DeveloperContent{ResponseFormats: []ResponseFormat{{Name: "r", Schema: json.RawMessage(`{`)}}}}}}, `response format "r"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst := []Token{1, 2}
			got, err := NewRenderer().AppendConversation(dst, c.msgs)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if !cmp.Equal(dst, got) {
				t.Errorf("dst became %v", got)
			}
		})
	}
	if _, err := NewRenderer().AppendCompletion(nil, nil, "model"); err == nil {
		t.Error("an unknown next role: no error")
	}
}

func TestAnalysisPolicy(t *testing.T) {
	msg := func(role Role, channel, text string) Message {
		m := Message{Role: role, Channel: channel, Content: []Content{Text(text)}}
		if role == RoleTool {
			m.Name = "python"
		}
		return m
	}
	analysis := func(text string) Message { return msg(RoleAssistant, ChannelAnalysis, text) }
	final := msg(RoleAssistant, ChannelFinal, "F")
	for _, c := range []struct {
		name               string
		msgs               []Message
		last, first, keeps string
	}{
		{"no final", []Message{analysis("a")}, "a", "a", "a"},
		{"one turn", []Message{analysis("a"), msg(RoleTool, ChannelAnalysis, "r"), final}, "F", "F", "arF"},
		{"two turns", []Message{analysis("a"), final, analysis("b"), final}, "FF", "FbF", "aFbF"},
		{"unfinished tool turn", []Message{analysis("a"), final, analysis("b"), msg(RoleAssistant, ChannelCommentary, "c")}, "Fbc", "aFbc", "aFbc"},
		{"final of a user", []Message{analysis("a"), msg(RoleUser, ChannelFinal, "u"), analysis("b")}, "aub", "aub", "aub"},
	} {
		for policy, want := range map[AnalysisPolicy]string{DropBeforeLastFinal: c.last, DropBeforeFirstFinal: c.first, KeepAnalysis: c.keeps} {
			tokens, err := NewRenderer(WithAnalysis(policy)).AppendConversation(nil, c.msgs)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, part := range strings.Split(textOf(t, tokens), "<|message|>")[1:] {
				text, _, _ := strings.Cut(part, "<|end|>")
				got.WriteString(text)
			}
			if got.String() != want {
				t.Errorf("%s, policy %d: %q, want %q", c.name, policy, &got, want)
			}
		}
	}
}

// TestTrainedCallForm checks that the header of a call in the history has the
// form that the model was trained with.
func TestTrainedCallForm(t *testing.T) {
	got, err := NewRenderer().AppendConversation(nil, []Message{
		{Role: RoleAssistant, Recipient: "functions.get_weather", Channel: ChannelCommentary, ContentType: "json", Content: []Content{Text(`{}`)}},
		{Role: RoleTool, Name: "functions.get_weather", Recipient: "assistant", Channel: ChannelCommentary, Content: []Content{Text("sunny")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []Token
	for _, part := range []any{
		TokenStart, "assistant", " to=functions.get_weather", TokenChannel, "commentary", " json", TokenMessage, "{}", TokenCall,
		TokenStart, "functions.get_weather", " to=assistant", TokenChannel, "commentary", TokenMessage, "sunny", TokenEnd,
	} {
		switch part := part.(type) {
		case Token:
			want = append(want, part)
		case string:
			want = AppendEncode(want, part)
		}
	}
	if !cmp.Equal(want, got) {
		t.Errorf("got %q", textOf(t, got))
	}
}

func TestResponseFormats(t *testing.T) {
	got, err := NewRenderer().AppendConversation(nil, []Message{{Role: RoleDeveloper, Content: []Content{&DeveloperContent{
		Instructions: "Be brief.",
		ResponseFormats: []ResponseFormat{
			{Name: "list", Description: "two\nlines", Schema: json.RawMessage("{\n \"type\": \"object\" }")},
			{Name: "other", Schema: json.RawMessage(`{"a":"<b>"}`)},
		},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Response Formats\n\n## list\n\n// two\n// lines\n{\"type\":\"object\"}\n\n## other\n\n{\"a\":\"<b>\"}<|end|>"
	if diff := cmp.Diff(want, textOf(t, got)); diff != "" {
		t.Error(diff)
	}
}

func TestBuiltinNamespaces(t *testing.T) {
	for _, c := range readLines[renderCase](t, "render.jsonl") {
		if c.Name != "built-in tools" {
			continue
		}
		want := mustConversation(t, c.Conversation)[0].Content[0].(*SystemContent).Tools
		got := []Namespace{BrowserNamespace(), PythonNamespace()}
		parameters := cmp.Transformer("text", func(m json.RawMessage) string { return strings.Join(strings.Fields(string(m)), "") })
		if diff := cmp.Diff(want, got, parameters, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
