package filter

import (
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/tidwall/gjson"
)

const (
	codexQuestion = `{"model":"gpt-oss-20b","input":"Hi","tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}}}]}`
	codexCalls    = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
	codexAnswers  = "<|channel|>final<|message|>Hello<|return|>"
)

// model posts a response's request, has the engine answer, and gives the object.
func (s *script) model(body, output string, headers ...string) gjson.Result {
	s.t.Helper()
	s.request(false, append([]string{":method=POST", ":path=/v1/responses", "content-type=application/json"}, headers...)...)
	s.body(body, true)
	s.expectLike("request headers :path=/v1/completions", "request body")
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens(output)...)+usageEvent+doneEvent, true)
	got := s.expectLike("response headers content-type=application/json", "response body {")
	return gjson.Parse(strings.TrimSuffix(strings.TrimPrefix(got[1], "response body "), " END"))
}

// goesOn is the request that gives the last call of a response its output.
func goesOn(r gjson.Result) string {
	calls := r.Get(`output.#(type=="function_call")#.call_id`).Array()
	return `{"model":"gpt-oss-20b","previous_response_id":"` + r.Get("id").Str + `","input":[{"type":"function_call_output","call_id":"` + calls[len(calls)-1].Str + `","output":"x"}]}`
}

func TestCodexCompatibility(t *testing.T) {
	for _, c := range []struct {
		name            string
		setting, allow  bool
		header          string
		wantSameID      bool
		wantLogsOfTurns int
	}{
		{"off", false, true, "", false, 0},
		{"on for the request", false, true, "On", true, 1},
		{"on for all", true, false, "", true, 1},
		{"off for the request", true, true, "off", false, 0},
		{"a header that is not allowed", false, false, "on", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, func(cfg *Config) { cfg.Responses.CodexCompatibility, cfg.AllowOverride = c.setting, c.allow })
			log := test.NewLocal(s.x.s.log)
			header := "x-envoy-harmony-codex=" + c.header
			first := s.model(codexQuestion, codexCalls, header)
			s = s.next()
			second := s.model(goesOn(first), codexAnswers, header)
			if same := second.Get("id").Str == first.Get("id").Str; same != c.wantSameID {
				t.Errorf("the ids are %s and %s", first.Get("id"), second.Get("id"))
			}
			lines := 0
			for _, e := range log.AllEntries() {
				if e.Message == "Response "+first.Get("id").Str+" (compatibility mode): continuing from previous response" {
					lines++
				}
			}
			if lines != c.wantLogsOfTurns {
				t.Errorf("%d lines in the log tell of continuations, want %d", lines, c.wantLogsOfTurns)
			}
		})
	}
}

// A request that is sent again is answered without the engine.
func TestCodexRequestSentAgain(t *testing.T) {
	s := newScript(t, func(cfg *Config) { cfg.Responses.CodexCompatibility = true })
	first := s.model(codexQuestion, codexCalls)
	s = s.next()
	second := s.model(goesOn(first), codexAnswers)
	s = s.next()
	s.request(false, ":method=POST", ":path=/v1/responses", "content-type=application/json")
	s.body(goesOn(first), true)
	if status, body := s.answered(); status != 200 || body != second.Raw {
		t.Errorf("status %d, %s\nwant %s", status, body, second.Raw)
	}
	s = s.next()
	s.request(false, ":method=POST", ":path=/v1/responses", "content-type=application/json")
	s.body(strings.Replace(goesOn(first), `"x"`, `"y"`, 1), true)
	if status, body := s.answered(); status != 409 || gjson.Get(body, "error.code").Str != "response_conflict" {
		t.Errorf("status %d, %s", status, body)
	}
}
