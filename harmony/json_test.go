package harmony

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestConversationJSON(t *testing.T) {
	msgs := []Message{
		{Role: RoleSystem, Content: []Content{&SystemContent{
			Identity: "I", KnowledgeCutoff: "2024-06", StartDate: "2025-06-28", Effort: EffortHigh, Channels: []string{"final"}, ChannelRequired: true,
			Tools: []Namespace{{Name: "python", Description: "runs <code>"}},
		}}},
		{Role: RoleDeveloper, Content: []Content{&DeveloperContent{
			Instructions:    "Be \u2028 brief & <kind>.",
			Tools:           []Namespace{{Name: "functions", Tools: []Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object","b":1,"a":2}`)}, {Name: "g"}}}},
			ResponseFormats: []ResponseFormat{{Name: "r", Schema: json.RawMessage(`{}`)}},
		}}},
		{Role: RoleUser, Name: "bob", Content: []Content{Text("a"), Text("b")}},
		{Role: RoleAssistant, Channel: ChannelCommentary, Recipient: "functions.f", ContentType: "json", Content: []Content{Text("{}")}},
		{Role: RoleTool, Name: "functions.f", Content: nil},
	}
	data, err := MarshalConversation(msgs)
	if err != nil {
		t.Fatal(err)
	}
	got := mustConversation(t, data)
	if diff := cmp.Diff(msgs, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(string(data), `\u003c`) {
		t.Errorf("HTML is escaped: %s", data)
	}
	for _, bad := range []Message{{Role: RoleUser, Content: []Content{nil}}, {Role: RoleSystem, Content: []Content{(*SystemContent)(nil)}}} {
		if _, err := MarshalConversation([]Message{bad}); err == nil {
			t.Errorf("%v is written", bad)
		}
	}
}

func TestConversationJSONErrors(t *testing.T) {
	for source, want := range map[string]string{
		``:                               "unexpected end of JSON",
		`[]`:                             "cannot unmarshal",
		`{}`:                             `it has no "messages"`,
		`{"messages":[{"role":"user"}]}`: `message 0 has no "content"`,
		`{"messages":[{"content":"x"}]}`: `message 0: role ""`,
		`{"messages":[{"role":"user","content":[{"type":"image"}]}]}`:                                                        `content of type "image"`,
		`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`:                                                         `text content has no "text"`,
		`{"messages":[{"role":"system","content":[{"type":"system_content","reasoning_effort":"high"}]}]}`:                   "use Low, Medium or High",
		`{"messages":[{"role":"developer","content":[{"type":"developer_content","tools":{"a":{"name":"b","tools":[]}}}]}]}`: `the namespace under "a" is named "b"`,
	} {
		if _, err := UnmarshalConversation([]byte(source)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", source, err, want)
		}
	}
}

func FuzzConversationJSON(f *testing.F) {
	for _, c := range readLines[renderCase](f, "render.jsonl") {
		f.Add([]byte(c.Conversation))
	}
	r := NewRenderer()
	uncached := NewRenderer(WithCacheBytes(0))
	f.Fuzz(func(t *testing.T, data []byte) {
		msgs, err := UnmarshalConversation(data)
		if err != nil {
			return
		}
		written, err := MarshalConversation(msgs)
		if err != nil {
			t.Fatal(err)
		}
		again := mustConversation(t, written)
		want, err := uncached.AppendConversation(nil, msgs)
		got, errAgain := r.AppendConversation(nil, again)
		if (err == nil) != (errAgain == nil) || !cmp.Equal(want, got) {
			t.Fatalf("%s\nrenders as %q, %v\n%s\nas %q, %v", data, textOf(t, want), err, written, textOf(t, got), errAgain)
		}
	})
}
