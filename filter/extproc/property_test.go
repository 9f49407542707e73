package extproc

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// pieces of model output, well-formed and not.
var outputPieces = []string{
	"<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>", "<|end|>", "<|start|>assistant", "<|return|>", "<|call|>",
	"<|channel|>commentary to=functions.f <|constrain|>json<|message|>", " to=functions.f<|channel|>commentary json<|message|>", "<|message|>", "<|channel|>", "<|start|>", "<|constrain|>",
	"Let me think. ", "Grüße, 世界 🙂👩🏽‍🚀", `{"a":"b\n"}`, "STOP", " ST", "OP!", "\n\n", " to=functions.f", "commentary", "json", "final", "assistant",
}

// soundOutputs are outputs of a model that makes no mistakes.
var soundOutputs = []string{
	"<|channel|>analysis<|message|>Hm, 🙂.<|end|><|start|>assistant<|channel|>final<|message|>Grüße, 世界!<|return|>",
	"<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
	"<|channel|>commentary to=functions.f json<|message|>{\"a\":1}<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>",
	"<|channel|>final<|message|>one STOP two<|return|>",
}

// generated is one output: ids of text and of control tokens, broken UTF-8, and ids
// of no vocabulary.
func generated(r *rand.Rand) []harmony.Token {
	if r.IntN(3) == 0 {
		return tokens(soundOutputs[r.IntN(len(soundOutputs))])
	}
	var out []harmony.Token
	for range 1 + r.IntN(14) {
		switch r.IntN(10) {
		case 0:
			out = append(out, harmony.Token(r.IntN(256)))
		case 1:
			out = append(out, harmony.Token(r.IntN(201_200)))
		default:
			out = append(out, tokens(outputPieces[r.IntN(len(outputPieces))])...)
		}
	}
	return out
}

// engineReply is the bytes of a vLLM reply with these ids, cut into events at
// random.
func engineReply(ids []harmony.Token, finish string, r *rand.Rand) string {
	var b strings.Builder
	for len(ids) > 0 {
		n := 1
		if r != nil {
			n = 1 + r.IntN(min(8, len(ids)))
		}
		end := ""
		if n == len(ids) {
			end = finish
		}
		b.WriteString(event(end, ids[:n]...))
		ids = ids[n:]
	}
	return b.String() + usageEvent + doneEvent
}

// replyTo makes one reply, and returns what the client gets.
func (s *scripted) replyTo(fields, reply string, r *rand.Rand) string {
	s.t.Helper()
	s.next()
	s.posted(`,"tools":[{"type":"function","function":{"name":"f"}}],"stop":"STOP"` + fields)
	s.answer(false, ":status=200", sse)
	for len(reply) > 0 {
		n := len(reply)
		if r != nil {
			n = 1 + r.IntN(min(200, len(reply)))
		}
		s.answerBody(reply[:n], n == len(reply))
		reply = reply[n:]
	}
	var body strings.Builder
	for i, l := range s.sent() {
		l, _ = strings.CutSuffix(l, " END")
		if text, ok := strings.CutPrefix(l, "response body "); ok {
			body.WriteString(text)
		} else if i > 0 || !strings.HasPrefix(l, "response headers") {
			s.t.Fatalf("not a reply: %s", l)
		}
	}
	return body.String()
}

// message is the content of a reply, streamed or not.
type message struct {
	Content, Reasoning, Finish, Stop string
	Calls                            []string
	Usage                            string
}

func wholeMessage(t *testing.T, body string) message {
	t.Helper()
	if !json.Valid([]byte(body)) || !utf8.ValidString(body) {
		t.Fatalf("not JSON: %q", body)
	}
	c := gjson.Get(body, "choices.0")
	m := message{Content: c.Get("message.content").String(), Reasoning: c.Get("message.reasoning").String(), Finish: c.Get("finish_reason").String(), Stop: c.Get("matched_stop").String(), Usage: gjson.Get(body, "usage").Raw}
	for _, call := range c.Get("message.tool_calls").Array() {
		m.Calls = append(m.Calls, call.Get("function.name").String()+" "+call.Get("function.arguments").String())
	}
	return m
}

// joined is the message of a stream, which must be well-formed to its end.
func joined(t *testing.T, body string) message {
	t.Helper()
	var m message
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	for i, e := range events {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok {
			t.Fatalf("no event: %q", e)
		}
		if i == len(events)-1 {
			if data != "[DONE]" {
				t.Fatalf("the stream ends in %q", data)
			}
			break
		}
		if !json.Valid([]byte(data)) || !utf8.ValidString(data) {
			t.Fatalf("not JSON: %q", data)
		}
		if u := gjson.Get(data, "usage"); u.IsObject() {
			m.Usage = u.Raw
		}
		c := gjson.Get(data, "choices.0")
		m.Content += c.Get("delta.content").String()
		m.Reasoning += c.Get("delta.reasoning").String()
		m.Finish += c.Get("finish_reason").String()
		m.Stop += c.Get("matched_stop").String()
		for _, call := range c.Get("delta.tool_calls").Array() {
			n := int(call.Get("index").Int())
			if n == len(m.Calls) {
				m.Calls = append(m.Calls, call.Get("function.name").String()+" ")
			}
			m.Calls[n] += call.Get("function.arguments").String()
		}
	}
	return m
}

// One id an event or many, body pieces of any size, streamed or whole: the client
// gets the same.
func TestAnyChunkingSameReply(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				r := rand.New(rand.NewPCG(seed, 1))
				ids := generated(r)
				finish := []string{"stop", "length"}[r.IntN(2)]
				want := wholeMessage(t, s.replyTo("", engineReply(ids, finish, nil), nil))
				if want.Finish == "" {
					t.Errorf("no finish_reason for %v", ids)
				}
				for range 4 {
					whole := wholeMessage(t, s.replyTo("", engineReply(ids, finish, r), r))
					if diff := cmp.Diff(withoutUsage(want), withoutUsage(whole)); diff != "" {
						t.Fatalf("ids %v\nchunked (-one id an event +many):\n%s", ids, diff)
					}
					stream := joined(t, s.replyTo(`,"stream":true,"stream_options":{"include_usage":true}`, engineReply(ids, finish, r), r))
					if diff := cmp.Diff(withoutUsage(want), withoutUsage(stream)); diff != "" {
						t.Fatalf("ids %v\nstreamed (-whole +stream):\n%s", ids, diff)
					}
				}
				for _, text := range []string{want.Content, want.Reasoning, strings.Join(want.Calls, "")} {
					for _, mark := range []string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"} {
						if strings.Contains(text, mark) {
							t.Errorf("a control token leaks: %q of ids %v", text, ids)
						}
					}
				}
			})
		})
	}
}

// withoutUsage leaves out the counts: ids after a stop string in the same
// chunk are counted or never seen, as the chunks fall.
func withoutUsage(m message) message {
	m.Usage = ""
	return m
}

// FuzzExchange: whatever the client asks and the engine answers, nothing panics,
// nothing waits for ever and what the client gets is well-formed.
func FuzzExchange(f *testing.F) {
	f.Add(ask(""), []byte(engineReply(tokens(soundOutputs[0]), "stop", nil)), uint16(100), true)
	f.Add(ask(`,"stream":true,"n":2,"stop":["a"]`), []byte(engineReply(tokens(soundOutputs[1]), "stop", nil)), uint16(7), true)
	f.Add(ask(`,"stream":true`), []byte(`data: {"error":{"message":"no"}}`+"\n\n"), uint16(9), false)
	f.Add(`{"model":"gpt-oss","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"x"}]}]}`, []byte("data: [DONE]\n\n"), uint16(1), true)
	f.Add(`{"model":"gpt-oss"`, []byte{}, uint16(0), false)
	f.Fuzz(func(t *testing.T, request string, reply []byte, cut uint16, ends bool) {
		script(t, nil, func(s *scripted) {
			s.post()
			at := int(cut) % (len(request) + 1)
			s.body(request[:at], false)
			s.body(request[at:], true)
			s.answer(false, ":status=200", sse)
			at = int(cut) % (len(reply) + 1)
			s.answerBody(string(reply[:at]), false)
			s.answerBody(string(reply[at:]), ends)
			s.wait(2 * s.o.Config.Limits.TotalTimeout.Duration)
			checkReply(t, s.sent())
			s.leave()
			if n := s.inUse(); n != 0 {
				t.Fatalf("%d bytes of the budget are lost", n)
			}
		})
	})
}

// checkReply checks that what Envoy got is a whole reply: a JSON object, or a stream
// with its end, which is END or trailers. An immediate response is one by itself, and
// so is what passes through, as far as it has come.
func checkReply(t *testing.T, sent []string) {
	t.Helper()
	var body strings.Builder
	engine, complete := false, false
	for _, l := range sent {
		if strings.HasPrefix(l, "immediate ") {
			return
		}
		engine = engine || strings.HasPrefix(l, "request headers :path=")
		l, complete = strings.CutSuffix(l, " END")
		complete = complete || strings.HasPrefix(l, "response trailers")
		if text, ok := strings.CutPrefix(l, "response body "); ok {
			body.WriteString(text)
		}
	}
	if !engine { // the request passed through
		return
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
