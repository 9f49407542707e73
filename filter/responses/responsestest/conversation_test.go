package responsestest

import (
	"strings"
	"testing"
)

// breaks checks that a check refuses an object without any of these parts.
func breaks(t *testing.T, check func([]byte) error, good string, parts ...string) {
	t.Helper()
	if err := check([]byte(good)); err != nil {
		t.Fatal(err)
	}

	for _, part := range parts {
		bad := strings.Replace(good, part, "", 1)
		if bad == good {
			t.Errorf("%s is not there", part)
		} else if err := check([]byte(bad)); err == nil {
			t.Errorf("%s can be left out", part)
		}
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	breaks(t, Conversation, `{"id":"conv_1","object":"conversation","created_at":1,"metadata":{}}`,
		`"id":"conv_1",`, `"object":"conversation",`, `"created_at":1,`, `,"metadata":{}`, `}`)
	breaks(t, Item, `{"type":"message","id":"a","status":"completed","role":"user","content":[]}`,
		`"type":"message",`, `"id":"a",`, `"status":"completed",`, `,"content":[]`)
	if err := Item([]byte(`{"type":"compaction","id":"a","encrypted_content":"x"}`)); err != nil {
		t.Errorf("a compaction has no status: %v", err)
	}
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	const usage = `{"input_tokens":1,"output_tokens":1,"total_tokens":2,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}`
	const good = `{"id":"resp_1","object":"response.compaction","created_at":1,"output":[` +
		`{"type":"message","id":"a","status":"completed","role":"user","content":[]},{"type":"compaction","id":"b","encrypted_content":"x"}],"usage":` + usage + `}`
	item := func(b []byte) error {
		_, err := Compaction(b)
		return err
	}
	breaks(t, item, good, `"id":"resp_1",`, `"created_at":1,`, `"status":"completed",`, `,{"type":"compaction","id":"b","encrypted_content":"x"}`, `,"encrypted_content":"x"`, `,"usage":`+usage)
	if err := item([]byte(strings.Replace(good, `"user"`, `"assistant"`, 1))); err == nil {
		t.Error("what the assistant said can stay")
	}
}

// TestStreamOfACompaction shows that an item which is never in progress has two
// events and nothing between them.
func TestStreamOfACompaction(t *testing.T) {
	t.Parallel()
	const item = `{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`
	s := &stream{phase: phaseRunning}
	for i, step := range []string{"added", "done"} {
		e := `event: response.output_item.` + step + "\ndata: " + `{"type":"response.output_item.` + step + `","sequence_number":` + string(rune('0'+i)) + `,"output_index":0,"item":` + item + "}\n\n"
		if err := s.block(e); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}

	if len(s.items) != 1 || s.items[0].done != item {
		t.Errorf("%d items", len(s.items))
	}
}
