package harmony

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bytesKept returns the memory of the cache's entries as the cache counts it.
func (c *messageCache) bytesKept() int {
	total := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, e := range s.young {
			total += e.size
		}
		for _, e := range s.old {
			total += e.size
		}
		s.mu.Unlock()
	}
	return total
}

func textMessage(text string) Message {
	return Message{Role: RoleUser, Content: []Content{Text(text)}}
}

func TestCacheIsBounded(t *testing.T) {
	const limit = 256 << 10
	r := NewRenderer(WithCacheBytes(limit))
	for i := range 5000 {
		if _, err := r.AppendConversation(nil, []Message{textMessage(fmt.Sprint("message ", i, strings.Repeat(" and", i%50)))}); err != nil {
			t.Fatal(err)
		}
		if i%50 != 0 {
			continue
		}
		if kept := r.cache.bytesKept(); kept > limit {
			t.Fatalf("%d bytes kept after %d messages", kept, i)
		}
	}
	if r.cache.bytesKept() < limit/4 {
		t.Errorf("only %d bytes kept", r.cache.bytesKept())
	}
	before := r.cache.bytesKept()
	if _, err := r.AppendConversation(nil, []Message{textMessage(strings.Repeat("too large ", limit))}); err != nil {
		t.Fatal(err)
	}
	if r.cache.bytesKept() != before {
		t.Error("a message larger than the cache was added")
	}
}

// TestCacheKeepsUsedEntries uses one message repeatedly among many others.
func TestCacheKeepsUsedEntries(t *testing.T) {
	r := NewRenderer(WithCacheBytes(64 << 10))
	used := textMessage("used all the time")
	for i := range 2000 {
		if _, err := r.AppendConversation(nil, []Message{used, textMessage(fmt.Sprint("passing by ", i))}); err != nil {
			t.Fatal(err)
		}
	}
	k := newMessageKey(nil, &used, false)
	if _, tokens := r.cache.find(r.cache.hash(k), k); tokens == nil {
		t.Error("the message was dropped")
	}
}

// TestCacheKeys compares the keys of messages that differ in one field, or in
// the boundary between fields.
func TestCacheKeys(t *testing.T) {
	system := func(c SystemContent) Message { return Message{Role: RoleSystem, Content: []Content{&c}} }
	developer := func(c DeveloperContent) Message { return Message{Role: RoleDeveloper, Content: []Content{&c}} }
	tool := func(name, description, parameters string) Message {
		return developer(DeveloperContent{Tools: []Namespace{{Name: "n", Tools: []Tool{{Name: name, Description: description, Parameters: []byte(parameters)}}}}})
	}
	msgs := []Message{
		textMessage("a"),
		{Role: RoleUser, Name: "a"},
		{Role: RoleUser, Channel: "a"},
		{Role: RoleUser, Recipient: "a"},
		{Role: RoleUser, Recipient: "a", RecipientLast: true},
		{Role: RoleUser, ContentType: "a"},
		{Role: RoleAssistant, Content: []Content{Text("a")}},
		{Role: RoleUser},
		textMessage(""),
		{Role: RoleUser, Content: []Content{Text("a"), Text("a")}},
		textMessage("aa"),
		{Role: RoleUser, Content: []Content{Text("a"), Text("")}},
		system(SystemContent{}), system(SystemContent{Identity: "a"}), system(SystemContent{KnowledgeCutoff: "a"}), system(SystemContent{StartDate: "a"}),
		system(SystemContent{Effort: EffortLow}), system(SystemContent{Channels: []string{"a"}}), system(SystemContent{Channels: []string{"a", ""}}),
		system(SystemContent{Channels: []string{"a"}, ChannelRequired: true}), system(SystemContent{Tools: []Namespace{{Name: "a"}}}),
		developer(DeveloperContent{}), developer(DeveloperContent{Instructions: "a"}), developer(DeveloperContent{ResponseFormats: []ResponseFormat{{Name: "a", Schema: []byte("1")}}}),
		tool("a", "", ""), tool("a", "b", ""), tool("ab", "", ""), tool("a", "", "{}"),
	}
	keys := map[string]int{}
	for i := range msgs {
		for _, functions := range []bool{false, true} {
			k := newMessageKey(nil, &msgs[i], functions)
			id := fmt.Sprintf("%q %q", k.head, k.text)
			if before, ok := keys[id]; ok && before != i {
				t.Errorf("messages %d and %d share a key", before, i)
			}
			keys[id] = i
		}
	}
}

// TestCacheFunctionsNote renders the same system message with and without
// functions in the conversation.
func TestCacheFunctionsNote(t *testing.T) {
	r := NewRenderer()
	system := Message{Role: RoleSystem, Content: []Content{&SystemContent{Channels: []string{"final"}}}}
	functions := Message{Role: RoleDeveloper, Content: []Content{&DeveloperContent{Tools: []Namespace{{Name: "functions", Tools: []Tool{{Name: "f"}}}}}}}
	for range 2 {
		for _, msgs := range [][]Message{{system}, {system, functions}} {
			tokens, err := r.AppendConversation(nil, msgs)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(textOf(t, tokens), "commentary channel: 'functions'"); got != (len(msgs) == 2) {
				t.Errorf("%d messages: note %v", len(msgs), got)
			}
		}
	}
}

func TestRendererConcurrently(t *testing.T) {
	msgs := make([]Message, 200)
	for i := range msgs {
		msgs[i] = textMessage(fmt.Sprint("message number ", i))
	}
	want, err := NewRenderer(WithCacheBytes(0)).AppendConversation(nil, msgs)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRenderer(WithCacheBytes(16 << 10)) // small, so that entries are dropped
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			var got []Token
			for range 20 {
				got, _ = r.AppendConversation(got[:0], msgs[:rnd.IntN(len(msgs)+1)])
				if !slices.Equal(got, want[:len(got)]) {
					t.Error(cmp.Diff(want[:len(got)], got))
				}
			}
		})
	}
	wg.Wait()
}
