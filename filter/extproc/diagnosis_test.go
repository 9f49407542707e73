package extproc

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// asked is one request of a session, with what the engine has of its prompt.
type asked struct {
	path, body string
	cached     int // tokens; -1: all of the prompt
	headers    []string
}

var requests int

// reply makes the whole reply to a request, and returns the object and the log line.
func (s *scripted) reply(q asked) (object, line gjson.Result) {
	s.t.Helper()
	requests++
	s.request(false, append([]string{":method=POST", ":path=" + q.path, "content-type=application/json", "x-request-id=r" + strconv.Itoa(requests)}, q.headers...)...)
	s.body(q.body, true)
	prompt := len(s.toEngine().Get("prompt").Array())
	if q.cached < 0 {
		q.cached = prompt
	}
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens("<|channel|>final<|message|>Fine.<|return|>")...)+
		fmt.Sprintf(`data: {"id":"c","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":5,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":%d}}}`, prompt, q.cached)+"\n\n"+doneEvent, true)
	got := s.expectLike("local headers :status=200 content-type=application/json", "local body {")
	s.leave()
	lines := s.lines(s.t)
	s.checkFields(lines)
	s.next()
	return gjson.Parse(strings.TrimSuffix(strings.TrimPrefix(got[1], "local body "), " END")), lines[len(lines)-1]
}

// talk is the conversation of an agent, as the three APIs have it.
type talk struct {
	model, instructions, first string
	tools                      []string
	effort                     string
	turns                      int // that have an answer
	extra                      string
}

func newTalk() talk {
	return talk{model: "gpt-oss-20b", instructions: strings.Repeat("Always be brief. ", 300), first: strings.Repeat("What is this? ", 50), tools: []string{"read", "write"}, effort: "low"}
}

func quote(s string) string {
	p, _ := json.Marshal(s)
	return string(p)
}

func (k talk) list(each func(name string) string) string {
	all := make([]string, len(k.tools))
	for i, name := range k.tools {
		all[i] = each(name)
	}
	return "[" + strings.Join(all, ",") + "]"
}

func (k talk) conversation() string {
	all := make([]string, 0, 1+2*k.turns)
	all = append(all, `{"role":"user","content":`+quote(k.first)+`}`)
	for i := range k.turns {
		all = append(all, `{"role":"assistant","content":"Fine."}`, `{"role":"user","content":`+quote(strings.Repeat("And then? ", 20+i))+`}`)
	}
	return "[" + strings.Join(all, ",") + "]"
}

func (k talk) responses() asked {
	tools := k.list(func(name string) string {
		return `{"type":"function","name":"` + name + `","description":` + quote(strings.Repeat(name+" a file. ", 30)) + `,"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}`
	})
	return asked{"/v1/responses", fmt.Sprintf(`{"model":%q,"instructions":%s,"input":%s,"tools":%s,"reasoning":{"effort":%q},"prompt_cache_key":"session"%s}`,
		k.model, quote(k.instructions), k.conversation(), tools, k.effort, k.extra), -1, nil}
}

func (k talk) messages() asked {
	tools := k.list(func(name string) string {
		return `{"name":"` + name + `","description":` + quote(strings.Repeat(name+" a file. ", 30)) + `,"input_schema":{"type":"object","properties":{"path":{"type":"string"}}}}`
	})
	return asked{"/v1/messages", fmt.Sprintf(`{"model":%q,"max_tokens":100,"system":%s,"messages":%s,"tools":%s,"output_config":{"effort":%q},"metadata":{"user_id":"session"}%s}`,
		k.model, quote(k.instructions), k.conversation(), tools, k.effort, k.extra), -1, []string{"anthropic-version=2023-06-01"}}
}

func (k talk) chat() asked {
	tools := k.list(func(name string) string {
		return `{"type":"function","function":{"name":"` + name + `","description":` + quote(strings.Repeat(name+" a file. ", 30)) + `,"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}`
	})
	messages := `[{"role":"system","content":` + quote(k.instructions) + `},` + k.conversation()[1:]
	return asked{"/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":%s,"tools":%s,"reasoning_effort":%q%s}`, k.model, messages, tools, k.effort, k.extra), -1, nil}
}

// breaks are changes of a conversation, with the cause that is found.
var breaks = []struct {
	name   string
	change func(*talk)
	cause  string // "": it goes on
	openAI string // prompt_cache_diagnostics
	claude string // diagnostics.cache_miss_reason
	first  int    // index of the first message that differs
}{
	{"the conversation goes on", func(*talk) {}, "", "cache_hit", "", 0},
	{"other instructions", func(k *talk) { k.instructions = "It is 9:41. " + k.instructions }, "instructions", "input_changed", "system_changed", 1},
	{"a tool less", func(k *talk) { k.tools = k.tools[:1] }, "tools", "tools_changed", "tools_changed", 1},
	{"the tools in another order", func(k *talk) { k.tools = []string{"write", "read"} }, "tools_reordered", "tools_changed", "tools_changed", 1},
	{"another effort", func(k *talk) { k.effort = "high" }, "effort", "reasoning_effort_changed", "unavailable", 0},
	{"another model", func(k *talk) { k.model = "gpt-oss-120b" }, "model", "model_changed", "model_changed", 0},
}

// TestPrefixBroken makes two turns of a conversation in each API, of which the second
// may have another beginning.
func TestPrefixBroken(t *testing.T) {
	for _, b := range breaks {
		t.Run(b.name, func(t *testing.T) {
			script(t, nil, func(s *scripted) {
				for _, api := range []string{"responses", "messages", "chat"} {
					s.breaks(api, b.change, b.cause, b.openAI, b.claude, b.first)
				}
			})
		})
	}
}

// breaks makes two turns of a conversation, the second one with a change.
func (s *scripted) breaks(api string, change func(*talk), cause, openAI, claude string, first int) {
	s.t.Helper()
	k := newTalk()
	k.first = api + k.first
	in := map[string]func(talk) asked{"responses": talk.responses, "messages": talk.messages, "chat": talk.chat}[api]
	before, line := s.reply(in(k))
	if line.Get("prefix_broken").Exists() || line.Get("prefix_missed").Exists() {
		s.t.Errorf("%s: the first turn: %s", api, line.Raw)
	}
	k.turns++
	change(&k)
	switch api {
	case "responses":
		k.extra = `,"prompt_cache_options":{"comparison_response_id":"` + before.Get("id").Str + `"}`
	case "messages":
		k.extra = `,"diagnostics":{"previous_message_id":"` + before.Get("id").Str + `"}`
	}
	counted := s.counted(s.t, "harmony_prefix_broken_total", "cause="+cause)
	object, line := s.reply(in(k))
	if got := line.Get("prefix_broken").Str; got != cause || line.Get("prefix_missed").Exists() || int(line.Get("prefix_message").Int()) != first {
		s.t.Errorf("%s: %s", api, line.Raw)
	}
	if got := s.counted(s.t, "harmony_prefix_broken_total", "cause="+cause); cause != "" && got != counted+1 {
		s.t.Errorf("%s: %v are counted, and %v before", api, got, counted)
	}
	switch lost := line.Get("prefix_lost_tokens"); api {
	case "responses":
		d := object.Get("prompt_cache_diagnostics")
		if err := responsestest.Object([]byte(object.Raw)); err != nil {
			s.t.Error(err)
		}
		if cause == "" && d.Raw != `{"type":"cache_hit"}` || cause != "" && (d.Get("type").Str != "cache_miss" || d.Get("reason").Str != openAI || d.Get("cache_missed_tokens").Raw != lost.Raw || d.Get("comparison_reusable_tokens").Raw != line.Get("prefix_shared_tokens").Raw) {
			s.t.Errorf("%s: %s", d.Raw, line.Raw)
		}
	case "messages":
		d := object.Get("diagnostics")
		switch {
		case cause == "":
			if d.Raw != "null" {
				s.t.Error(d.Raw)
			}
		case d.Get("cache_miss_reason.type").Str != claude, claude != "unavailable" && d.Get("cache_miss_reason.cache_missed_input_tokens").Raw != lost.Raw:
			s.t.Errorf("%s: %s", d.Raw, line.Raw)
		}
	}
}

// TestPrefixMissed requires that a cache which has lost a prompt is told apart from a
// prompt that has changed.
func TestPrefixMissed(t *testing.T) {
	script(t, nil, func(s *scripted) {
		k := newTalk()
		first, _ := s.reply(k.responses())
		k.turns++
		k.extra = `,"prompt_cache_options":{"comparison_response_id":"` + first.Get("id").Str + `"}`
		q := k.responses()
		q.cached = 100
		object, line := s.reply(q)
		if line.Get("prefix_missed").Str != "not_cached" || line.Get("prefix_broken").Exists() || line.Get("prefix_shared_tokens").Int() < 1000 {
			t.Error(line.Raw)
		}
		if s.counted(t, "harmony_prefix_broken_total", "cause=not_cached") != 1 {
			t.Error("it is not counted")
		}
		if d := object.Get("prompt_cache_diagnostics"); d.Raw != `{"type":"unavailable"}` {
			t.Error(d.Raw)
		}
		q.body = strings.Replace(q.body, `"prompt_cache_key":"session"`, `"prompt_cache_key":"other"`, 1)
		object, line = s.reply(q)
		if d := object.Get("prompt_cache_diagnostics"); d.Get("reason").Str != "prompt_cache_key_changed" || d.Get("cache_missed_tokens").Int() != d.Get("comparison_reusable_tokens").Int()-100 {
			t.Error(d.Raw, line.Raw)
		}
	})
}

// TestDiagnosticsOfNothing has requests for diagnostics that have nothing to compare.
func TestDiagnosticsOfNothing(t *testing.T) {
	script(t, func(w *wiring) { w.cfg.TenantHeader = "x-tenant" }, func(s *scripted) {
		in := func(q asked, tenant string) asked {
			q.headers = append(q.headers, "x-tenant="+tenant)
			return q
		}
		k := newTalk()
		response, _ := s.reply(in(k.responses(), "a"))
		message, _ := s.reply(in(k.messages(), "a"))
		if response.Get("prompt_cache_diagnostics").Exists() || message.Get("diagnostics").Exists() {
			t.Errorf("there are diagnostics that nobody has asked for: %s %s", response.Raw, message.Raw)
		}
		k.turns++
		for _, c := range []struct{ name, tenant, responses, messages string }{
			{"of the same tenant", "a", `{"type":"cache_hit"}`, `null`},
			{"of another tenant", "b", `{"type":"comparison_response_not_found"}`, `{"cache_miss_reason":{"type":"previous_message_not_found"}}`},
		} {
			k.extra = `,"prompt_cache_options":{"comparison_response_id":"` + response.Get("id").Str + `"}`
			object, line := s.reply(in(k.responses(), c.tenant))
			if d := object.Get("prompt_cache_diagnostics"); d.Raw != c.responses || line.Get("prefix_broken").Exists() {
				t.Errorf("a response %s: %s %s", c.name, d.Raw, line.Raw)
			}
			if echo := object.Get("prompt_cache_options.comparison_response_id"); echo.Str != response.Get("id").Str {
				t.Errorf("%q is repeated", echo.Str)
			}
			k.extra = `,"diagnostics":{"previous_message_id":"` + message.Get("id").Str + `"}`
			object, _ = s.reply(in(k.messages(), c.tenant))
			if d := object.Get("diagnostics"); d.Raw != c.messages {
				t.Errorf("a message %s: %s", c.name, d.Raw)
			}
		}
		k.extra = `,"diagnostics":{"previous_message_id":null}`
		if object, _ := s.reply(in(k.messages(), "a")); object.Get("diagnostics").Raw != "null" {
			t.Error(object.Raw)
		}
	})
}

// TestNoDiagnosis switches the comparison off.
func TestNoDiagnosis(t *testing.T) {
	script(t, func(w *wiring) { w.cfg.Limits.DiagnosisBytes, w.cfg.ReplyHeaders = 0, nil }, func(s *scripted) {
		k := newTalk()
		k.extra = `,"prompt_cache_options":{"comparison_response_id":"resp_1"}`
		s.reply(k.responses())
		k.effort = "high"
		object, line := s.reply(k.responses())
		if object.Get("prompt_cache_diagnostics").Exists() || line.Get("prefix_broken").Exists() {
			t.Error(object.Raw, line.Raw)
		}
		k.extra = `,"diagnostics":{"previous_message_id":null}`
		if object, _ = s.reply(k.messages()); object.Get("diagnostics").Exists() {
			t.Error(object.Raw)
		}
	})
}

// TestRenderingIsNoTurn requires that requests without a model call are not remembered.
func TestRenderingIsNoTurn(t *testing.T) {
	script(t, nil, func(s *scripted) {
		k := newTalk()
		s.postTo("/v1/responses/render", k.responses().body)
		if status, _ := s.answered(); status != 200 {
			t.Fatal(status)
		}
		s.next()
		k.effort = "high"
		if _, line := s.reply(k.responses()); line.Get("prefix_broken").Exists() {
			t.Error(line.Raw)
		}
	})
}

// TestStreamedDiagnostics requires that streams have the diagnostics too: Messages in the
// first event, Responses in the last.
func TestStreamedDiagnostics(t *testing.T) {
	script(t, nil, func(s *scripted) {
		k := newTalk()
		response, _ := s.reply(k.responses())
		message, _ := s.reply(k.messages())
		k.effort, k.tools = "high", k.tools[:1]
		k.extra = `,"stream":true,"prompt_cache_options":{"comparison_response_id":"` + response.Get("id").Str + `"}`
		events := s.stream(k.responses())
		for i, e := range events {
			d := e.Get("response.prompt_cache_diagnostics")
			if last := i == len(events)-1; e.Get("response").Exists() && d.Exists() != last || last && d.Get("reason").Str != "reasoning_effort_changed" {
				t.Errorf("event %d: %s", i, e.Raw)
			}
		}
		k.effort = "low"
		k.extra = `,"stream":true,"diagnostics":{"previous_message_id":"` + message.Get("id").Str + `"}`
		for i, e := range s.stream(k.messages()) {
			if d := e.Get("message.diagnostics.cache_miss_reason"); (d.Get("type").Str == "tools_changed" && d.Get("cache_missed_input_tokens").Int() > 0) != (i == 0) {
				t.Errorf("event %d: %s", i, e.Raw)
			}
		}
	})
}

// stream makes the whole reply to a request for a stream, and returns its events.
func (s *scripted) stream(q asked) (events []gjson.Result) {
	s.t.Helper()
	requests++
	s.request(false, append([]string{":method=POST", ":path=" + q.path, "content-type=application/json", "x-request-id=r" + strconv.Itoa(requests)}, q.headers...)...)
	s.body(q.body, true)
	s.toEngine()
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens("<|channel|>final<|message|>Fine.<|return|>")...)+usageEvent+doneEvent, true)
	for _, line := range s.sent() {
		_, data, _ := strings.Cut(line, "local body ")
		for line := range strings.Lines(data) {
			if p, ok := strings.CutPrefix(strings.TrimSpace(line), "data: {"); ok {
				events = append(events, gjson.Parse("{"+p))
			}
		}
	}
	if len(events) < 5 {
		s.t.Fatalf("%d events", len(events))
	}
	s.leave()
	s.next()
	return events
}

// TestCompactionIsNoTurn requires that a request for a summary is neither compared nor
// remembered.
func TestCompactionIsNoTurn(t *testing.T) {
	script(t, nil, func(s *scripted) {
		k := newTalk()
		s.reply(k.responses())
		compact := k
		compact.instructions = "Other instructions."
		q := compact.responses()
		q.path = "/v1/responses/compact"
		if _, line := s.reply(q); line.Get("prefix_broken").Exists() {
			t.Error(line.Raw)
		}
		k.turns++
		if _, line := s.reply(k.responses()); line.Get("prefix_broken").Exists() {
			t.Error(line.Raw)
		}
	})
}
