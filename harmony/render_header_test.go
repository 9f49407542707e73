package harmony

import (
	"fmt"
	"slices"
	"testing"
)

// TestRepeatedHeaders renders messages whose headers differ in one field, each more
// than once and more of them than are kept, and compares them with the same messages
// rendered alone.
func TestRepeatedHeaders(t *testing.T) {
	different := []Message{
		{Role: RoleUser},
		{Role: RoleAssistant},
		{Role: RoleDeveloper},
		{Role: RoleSystem},
		{Role: RoleUser, Name: "a"},
		{Role: RoleTool, Name: "a"},
		{Role: RoleTool, Name: "b"},
		{Role: RoleUser, Recipient: "a"},
		{Role: RoleUser, Recipient: "all"},
		{Role: RoleAssistant, Recipient: "a"},
		{Role: RoleUser, Channel: "a"},
		{Role: RoleAssistant, Channel: ChannelAnalysis},
		{Role: RoleAssistant, Channel: ChannelAnalysis, Recipient: "a"},
		{Role: RoleAssistant, Channel: ChannelAnalysis, Recipient: "a", RecipientLast: true},
		{Role: RoleUser, ContentType: "a"},
		{Role: RoleUser, ContentType: constrainMarker + "a"},
	}
	if len(different) <= keptHeaders {
		t.Fatal("all headers are kept")
	}
	r := NewRenderer(WithAnalysis(KeepAnalysis), WithCacheBytes(0))
	for repeat := 1; repeat <= len(different); repeat++ {
		msgs := make([]Message, 4*len(different))
		want := []Token{TokenEndOfText}
		for i := range msgs {
			m := different[(i+i/repeat)%len(different)]
			m.Content = []Content{Text(fmt.Sprint("message ", i))}
			msgs[i] = m
			var err error
			if want, err = r.AppendConversation(want, []Message{m}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := r.AppendConversation([]Token{TokenEndOfText}, msgs)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("a shift after %d messages: the conversation is not its messages one after the other", repeat)
		}
	}
}
