package responsestest

import (
	"os"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func golden(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile("../testdata/tools/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestStream breaks one rule at a time in a good stream.
func TestStream(t *testing.T) {
	t.Parallel()
	good := golden(t, "events.sse")
	if _, err := Stream([]byte(good)); err != nil {
		t.Fatal(err)
	}

	commented := ": keep-alive\n" + strings.NewReplacer("event: ", ": keep-alive\n: keep-alive\nevent: ", "data: [DONE]", ": keep-alive\ndata: [DONE]").Replace(good)
	if _, err := Stream([]byte(commented)); err != nil {
		t.Errorf("comments: %v", err)
	}

	if _, err := Stream([]byte(strings.Replace(good, "event: response.in_progress", ": keep-alive\n\nevent: response.in_progress", 1))); err == nil {
		t.Error("a comment can be an event without data")
	}

	events := strings.SplitAfter(good, "\n\n")
	for i := range len(events) - 1 {
		if _, err := Stream([]byte(strings.Join(append(append([]string{}, events[:i]...), events[i+1:]...), ""))); err == nil {
			t.Errorf("event %d can be left out:\n%s", i, events[i])
		}
	}

	for _, c := range []struct{ what, old, replacement, message string }{
		{"unknown event", "response.output_text.delta", "response.text.delta", "do not know"},
		{"event is not type", "event: response.output_text.delta", "event: response.output_text.done", "differ"},
		{"order", `"sequence_number":7`, `"sequence_number":8`, "sequence_number"},
		{"lines", "event: response.completed\n", "event: response.completed\nretry: 1\n", "two lines"},
		{"delta", `"delta":"I look"`, `"delta":"I looks"`, "join"},
		{"empty delta", `"delta":"I look"`, `"delta":""`, "no string with text"},
		{"item_id", `"item_id":"msg_3","output_index":1,"content_index":0,"delta"`, `"item_id":"msg_4","output_index":1,"content_index":0,"delta"`, "item_id"},
		{"output_index", `"item_id":"msg_3","output_index":1,"content_index":0,"delta"`, `"item_id":"msg_3","output_index":0,"content_index":0,"delta"`, "output_index"},
		{"content_index", `"output_index":1,"content_index":0,"delta"`, `"output_index":1,"content_index":1,"delta"`, "only part"},
		{"logprobs", `"delta":"I look","logprobs":[]`, `"delta":"I look"`, `"logprobs" is missing`},
		{"an entry without bytes", `"delta":"I look","logprobs":[]`, `"delta":"I look","logprobs":[{"token":"a","logprob":-0.5,"top_logprobs":[]}]`, `"bytes" is missing`},
		{"logprobs that were no delta", `"text":"I look at it.","logprobs":[]`, `"text":"I look at it.","logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]`, "log probabilities"},
		{"phase", `"role":"assistant","phase":"commentary","content":[]`, `"role":"assistant","phase":"final_answer","content":[]`, "phase"},
		{"call_id", `"status":"in_progress","call_id":"call_4"`, `"status":"in_progress","call_id":"call_5"`, "call_id"},
		{"done item", `"output_index":2,"item":{"type":"function_call","id":"fc_4","status":"completed"`, `"output_index":2,"item":{"type":"function_call","id":"fc_4","status":"incomplete"`, "not as it was told"},
		{"head", `"completed_at":1795262400,"error":null,"incomplete_details":null,"model":"gpt-oss-120b"`, `"completed_at":1795262400,"error":null,"incomplete_details":null,"model":"x"`, "model has changed"},
		{"early output", `"output":[]`, `"output":[{"type":"reasoning","id":"r","status":"completed","summary":[],"content":[]}]`, "has output"},
		{"stub", `"usage":null,`, ``, `"usage" is missing`},
	} {
		bad := strings.Replace(good, c.old, c.replacement, 1)
		if bad == good {
			t.Errorf("%s: %q is not there", c.what, c.old)
			continue
		}
		if _, err := Stream([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.what, err, c.message)
		}
	}
}

// TestObject breaks one rule at a time in a good response.
func TestObject(t *testing.T) {
	t.Parallel()
	good := golden(t, "reply.json")
	if err := Object([]byte(good)); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ old, replacement, message string }{
		{`"completed_at": 1795262400`, `"completed_at": null`, "completed_at"},
		{`"error": null`, `"error": {"code":"x","message":"y"}`, "error"},
		{`"incomplete_details": null`, `"incomplete_details": {"reason":"max_output_tokens"}`, "incomplete_details"},
		{`"status": "completed"`, `"status": "done"`, "not one of"},
		{`"type": "message",`, `"type": "message", "sequence_number": 1,`, "unknown member"},
		{`"id": "msg_3"`, `"id": "rs_2"`, "two items"},
		{`"total_tokens": `, `"total_tokens": 1`, "no total"},
		{`"store": false`, `"store": null`, "no boolean"},
		{`"temperature": 1`, `"temperature": null`, "no number"},
		{`"metadata": {}`, `"metadata": []`, "no object"},
		{`"annotations": []`, `"annotations": null`, "no array"},
		{`"text": "Three calls."`, `"text": null`, "no string"},
	} {
		bad := strings.Replace(good, c.old, c.replacement, 1)
		if bad == good {
			t.Errorf("%q is not there", c.old)
			continue
		}
		if err := Object([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.replacement, err, c.message)
		}
	}
}

func TestItems(t *testing.T) {
	t.Parallel()
	const good = `{"object":"list","data":[{"type":"message","id":"a","status":"completed","content":[]}],"first_id":"a","last_id":"a","has_more":false}`
	if err := Items([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"object":"list",`, `"status":"completed",`, `"id":"a",`, `,"has_more":false`, `,"content":[]`} {
		if err := Items([]byte(strings.Replace(good, part, "", 1))); err == nil {
			t.Errorf("%s can be left out", part)
		}
	}
}

// TestAskedFor breaks what only some requests ask for: the list of model calls
// and the Harmony messages.
func TestAskedFor(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../testdata/messages/reply.json")
	if err != nil {
		t.Fatal(err)
	}

	good := gjson.GetBytes(b, "@ugly").Raw
	if err := Object([]byte(good)); err != nil {
		t.Fatal(err)
	}

	several := strings.NewReplacer(`_per_turn":[`, `_per_turn":[1,`).Replace(good)
	if err := Object([]byte(several)); err != nil {
		t.Errorf("the turns of an earlier request: %v", err)
	}

	for _, c := range []struct{ old, replacement, message string }{
		{`"cached_tokens_per_turn":[0]`, `"cached_tokens_per_turn":[0,0]`, "cached_tokens_per_turn 2"},
		{`"cached_tokens_per_turn":[0]`, `"cached_tokens_per_turn":[1]`, "add up"},
		{`"tool_output_tokens":0,`, ``, "without tool_output_tokens"},
		{`"tool_output_tokens_per_turn":[0]`, `"tool_output_tokens_per_turn":[-1]`, "no count"},
		{`"output_messages":`, `"output_message":`, "unknown member"},
		{`"role":"developer"`, `"role":"dev"`, "not one of"},
		{`"channel":"analysis"`, `"channel":null`, "no string with text"},
	} {
		bad := strings.Replace(good, c.old, c.replacement, 1)
		if bad == good {
			t.Errorf("%q is not there", c.old)
			continue
		}
		if err := Object([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.replacement, err, c.message)
		}
	}

	only := good[:strings.Index(good, `,"output_messages":`)] + "}"
	if err := Object([]byte(only)); err == nil || !strings.Contains(err.Error(), "output_messages") {
		t.Errorf("input_messages alone: %v", err)
	}
}

// TestReasoningNames shows that a stream may have either name for the events of
// reasoning text, and not both.
func TestReasoningNames(t *testing.T) {
	t.Parallel()
	good := strings.ReplaceAll(golden(t, "../simple/events.sse"), "response.reasoning_text.", "response.reasoning.")
	if _, err := Stream([]byte(good)); err != nil {
		t.Fatal(err)
	}
	mixed := strings.ReplaceAll(good, "response.reasoning.done", "response.reasoning_text.done")
	if _, err := Stream([]byte(mixed)); err == nil || !strings.Contains(err.Error(), "two names") {
		t.Errorf("both names: %v", err)
	}
}
