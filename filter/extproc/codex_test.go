package extproc

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

const (
	codexQuestion = `{"model":"gpt-oss-20b","input":"Hi","tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}}}]}`
	codexCall     = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
	codexAnswer   = "<|channel|>final<|message|>Hello<|return|>"
)

// model sends a request for a response, has the engine answer, and returns the
// object.
func (s *scripted) model(body, output string, fields ...string) gjson.Result {
	s.t.Helper()
	s.postTo("/v1/responses", body, fields...)
	s.toEngine()
	return s.engineAnswers(output)
}

// continuation is the request with the output of a response's last call.
func continuation(r gjson.Result) string {
	calls := r.Get(`output.#(type=="function_call")#.call_id`).Array()
	return `{"model":"gpt-oss-20b","previous_response_id":"` + r.Get("id").Str + `","input":[{"type":"function_call_output","call_id":"` + calls[len(calls)-1].Str + `","output":"x"}]}`
}

func TestCodexCompatibility(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		setting, allow bool
		header         string
		sameID         bool
		lines          int // of the log, about continuations
	}{
		{"off", false, true, "", false, 0},
		{"on for the request", false, true, "On", true, 1},
		{"on for all", true, false, "", true, 1},
		{"off for the request", true, true, "off", false, 0},
		{"a header that is not allowed", false, false, "on", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			script(t, func(w *wiring) { w.cfg.Responses.CodexCompatibility, w.cfg.AllowOverride = c.setting, c.allow }, func(s *scripted) {
				header := "x-envoy-harmony-codex=" + c.header
				first := s.model(codexQuestion, codexCall, header)
				s.next()
				second := s.model(continuation(first), codexAnswer, header)
				if same := second.Get("id").Str == first.Get("id").Str; same != c.sameID {
					t.Errorf("the ids are %s and %s", first.Get("id"), second.Get("id"))
				}
				n := 0
				for _, l := range s.lines(t) {
					if l.Get("msg").Str == "Response "+first.Get("id").Str+" (compatibility mode): continuing from previous response" {
						n++
					}
				}
				if n != c.lines {
					t.Errorf("%d lines of the log are about continuations, want %d", n, c.lines)
				}
			})
		})
	}
}

// A request that is sent again is answered without the engine.
func TestCodexRequestSentAgain(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.cfg.Responses.CodexCompatibility = true }, func(s *scripted) {
		first := s.model(codexQuestion, codexCall)
		s.next()
		second := s.model(continuation(first), codexAnswer)
		s.next()
		s.postTo("/v1/responses", continuation(first))
		if status, body := s.answered(); status != 200 || body != second.Raw {
			t.Errorf("status %d, %s\nwant %s", status, body, second.Raw)
		}
		s.next()
		s.postTo("/v1/responses", strings.Replace(continuation(first), `"x"`, `"y"`, 1))
		if status, body := s.answered(); status != 409 || gjson.Get(body, "error.code").Str != "response_conflict" {
			t.Errorf("status %d, %s", status, body)
		}
	})
}
