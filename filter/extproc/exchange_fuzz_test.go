package extproc

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// Outputs of a model that makes no mistakes.
const (
	answerOutput = "<|channel|>analysis<|message|>Hm, 🙂.<|end|><|start|>assistant<|channel|>final<|message|>Grüße, 世界!<|return|>"
	callOutput   = "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" +
		"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>"
)

// engineReply is a vLLM's reply with an output, in two events.
func engineReply(output string) string {
	ids := tokens(output)
	return event("", ids[:len(ids)/2]...) + event("stop", ids[len(ids)/2:]...) + usageEvent + doneEvent
}

// FuzzExchange: whatever the client asks and the engine answers, nothing panics,
// nothing waits for ever and what the client gets is well-formed.
func FuzzExchange(f *testing.F) {
	f.Add(ask(""), []byte(engineReply(answerOutput)), uint16(100), true)
	f.Add(ask(`,"stream":true,"n":2,"stop":["a"]`), []byte(engineReply(callOutput)), uint16(7), true)
	f.Add(ask(`,"stream":true`), []byte(`data: {"error":{"message":"no"}}`+"\n\n"), uint16(9), false)
	f.Add(`{"model":"gpt-oss","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"x"}]}]}`, []byte("data: [DONE]\n\n"), uint16(1), true)
	f.Add(`{"model":"gpt-oss"`, []byte{}, uint16(0), false)
	f.Fuzz(func(t *testing.T, request string, reply []byte, cut uint16, ends bool) {
		script(t, nil, func(s *scripted) {
			s.post()
			at := int(cut) % (len(request) + 1)
			s.body(request[:at], false)
			s.body(request[at:], true)
			at = int(cut) % (len(reply) + 1)
			called := false
			for _, s.call = range s.loopback.waiting() {
				called = true
				s.answer(false, ":status=200", sse)
				s.answerBody(string(reply[:at]), false)
				s.answerBody(string(reply[at:]), ends)
			}
			s.wait(2 * s.o.Config.Limits.TotalTimeout.Duration)
			if called { // it has not passed through
				checkReply(t, s.sent())
			}
			s.leave()
			if n := s.inUse(); n != 0 {
				t.Fatalf("%d bytes of the budget are lost", n)
			}
		})
	})
}

// checkReply checks that what Envoy got is a whole reply: a JSON object, or a stream
// with its end, which is END or trailers. An immediate response is one by itself.
func checkReply(t *testing.T, sent []string) {
	t.Helper()
	var body strings.Builder
	complete := false
	for _, l := range sent {
		if strings.HasPrefix(l, "immediate ") {
			return
		}
		l, complete = strings.CutSuffix(l, " END")
		complete = complete || strings.HasPrefix(l, "response trailers")
		if text, ok := strings.CutPrefix(l, "response body "); ok {
			body.WriteString(text)
		}
		if text, ok := strings.CutPrefix(l, "local body "); ok {
			body.WriteString(text)
		}
	}
	if !complete {
		t.Fatalf("the exchange goes on: %q", sent)
	}
	if strings.HasPrefix(body.String(), "(") { // abbreviated
		return
	}
	if strings.HasPrefix(body.String(), "{") {
		if !json.Valid([]byte(body.String())) {
			t.Fatalf("not JSON: %q", body.String())
		}
		return
	}
	checkStream(t, body.String())
}

// lastEvents are the events that end a stream: chat's [DONE], and the types of
// Responses and of Messages.
var lastEvents = []string{"[DONE]", "response.completed", "response.incomplete", "response.failed", "message_stop", "error"}

// checkStream checks that a body is the events of one API, the last of which ends
// the stream.
func checkStream(t *testing.T, body string) {
	t.Helper()
	whole, ended := strings.CutSuffix(body, "\n\n")
	last := ""
	for e := range strings.SplitSeq(whole, "\n\n") {
		if strings.HasPrefix(e, ":") {
			continue
		}
		name := ""
		if rest, named := strings.CutPrefix(e, "event: "); named {
			name, e, _ = strings.Cut(rest, "\n")
		}
		data, isData := strings.CutPrefix(e, "data: ")
		if !isData || data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Fatalf("no event: %q", e)
		}
		last = data
		if name != "" {
			if typ := gjson.Get(data, "type").String(); typ != name {
				t.Fatalf("the event %q has the type %q: %q", name, typ, data)
			}
			last = name
		}
	}
	if !ended || !slices.Contains(lastEvents, last) {
		t.Fatalf("the stream has no end: %q", body)
	}
}
