package extproc

import (
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const (
	messagesPath     = "/v1/messages"
	messagesQuestion = `{"model":"gpt-oss-20b","max_tokens":100,"messages":[{"role":"user","content":"Hi"}]}`
)

func TestMessage(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo(messagesPath+"?beta=true", messagesQuestion, "anthropic-version=2023-06-01", "anthropic-beta=made-up-2030-01-01")
		s.toEngine()
		got := s.engineAnswers("<|channel|>final<|message|>Hello<|return|>")
		if got.Get("type").Str != "message" || got.Get("content.0.text").Str != "Hello" || got.Get("stop_reason").Str != "end_turn" {
			t.Errorf("%s", got.Raw)
		}

		s.next()
		s.postTo(messagesPath, strings.Replace(messagesQuestion, `,`, `,"stream":true,`, 1))
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, true)
		got2 := strings.Join(s.expectLike("local headers :status=200 content-type=text/event-stream; charset=utf-8 cache-control=no-cache x-request-id=abc request-id=abc", "local body event: message_start", "local body event: "), "\n")
		if !strings.Contains(got2, `"text_delta","text":"Hello"`) || !strings.Contains(got2, "event: message_stop") {
			t.Errorf("the stream:\n%s", got2)
		}

		s.next()
		s.postTo(messagesPath+"/count_tokens", messagesQuestion)
		if status, body := s.answered(); status != 200 || gjson.Get(body, "input_tokens").Int() < 60 {
			t.Errorf("status %d, %s", status, body)
		}
	})
}

// TestBetas shows that the values of anthropic-beta count, however many headers have them.
func TestBetas(t *testing.T) {
	t.Parallel()
	body := strings.Replace(messagesQuestion, `,`, `,"thinking":{"type":"enabled","budget_tokens":2000},`, 1)
	script(t, nil, func(s *scripted) {
		s.postTo(messagesPath, body, "anthropic-beta=effort-2025-11-24")
		s.expectLike("immediate 400 ")

		for _, fields := range [][]string{
			{"anthropic-beta=effort-2025-11-24, interleaved-thinking-2025-05-14"},
			{"anthropic-beta=interleaved-thinking-2025-05-14,effort-2025-11-24", "anthropic-beta=made-up-2030-01-01"},
			{"anthropic-beta=made-up-2030-01-01,", "anthropic-beta= interleaved-thinking-2025-05-14 "},
		} {
			s.next()
			s.postTo(messagesPath, body, fields...)
			s.toEngine()
			if got := s.engineAnswers("<|channel|>final<|message|>Hello<|return|>"); got.Get("content.0.text").Str != "Hello" {
				t.Errorf("%q: %s", fields, got.Raw)
			}
		}
	})
}

// TestMessagesErrors shows that errors have the form of the API, wherever in the
// exchange they are found.
func TestMessagesErrors(t *testing.T) {
	t.Parallel()
	post := func(body string) func(s *scripted) {
		return func(s *scripted) { s.postTo(messagesPath, body) }
	}
	engine := func(fields ...string) func(s *scripted) {
		return func(s *scripted) {
			s.postTo(messagesPath, messagesQuestion)
			s.toEngine()
			s.answer(true, fields...)
			for _, s.call = range s.loopback.waiting() { // the retry, where there is one
				s.answer(true, fields...)
			}
		}
	}
	begun := func(s *scripted) {
		s.request(false, ":method=POST", ":path="+messagesPath, "content-type=application/json", "x-request-id=abc")
		s.body("{", false)
	}
	for _, c := range []struct {
		name   string
		change func(*config.Config)
		drive  func(s *scripted)
		status int
		kind   string
		retry  string
	}{
		{"a field", nil, post(`{"model":"gpt-oss-20b","messages":[]}`), 400, "invalid_request_error", ""},
		{"not JSON", nil, post(`{nonsense`), 400, "invalid_request_error", ""},
		{"the count", nil, func(s *scripted) { s.postTo(messagesPath+"/count_tokens", `{"model":"gpt-oss-20b"}`) }, 400, "invalid_request_error", ""},
		{"no tenant", func(c *config.Config) { c.TenantHeader = "x-tenant" }, post(messagesQuestion), 401, "authentication_error", ""},
		{"a large body", func(c *config.Config) { c.Limits.MaxBodyBytes = 30 }, post(messagesQuestion), 413, "request_too_large", ""},
		{"a slow body", nil, func(s *scripted) { begun(s); s.wait(time.Minute) }, 408, "invalid_request_error", ""},
		{"no room", func(c *config.Config) { c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 30, 120 }, func(s *scripted) {
			other := s.occupy(s.t, 120)
			defer other.close()
			begun(s)
		}, 529, "overloaded_error", "1"},
		{"the engine's limit", nil, engine(":status=429", "retry-after=7"), 429, "rate_limit_error", "7"},
		{"no engine", nil, engine(":status=503", "retry-after=3"), 529, "overloaded_error", "3"},
		{"the engine's failure", nil, engine(":status=500"), 502, "api_error", ""},
		{"a reply of Envoy's own", nil, func(s *scripted) { begun(s); s.envoyAnswer(true, ":status=504") }, 504, "timeout_error", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			change := func(w *wiring) {
				if c.change != nil {
					c.change(w.cfg)
				}
			}
			script(t, change, func(s *scripted) {
				c.drive(s)
				status, body := s.answered()
				if status != c.status || gjson.Get(body, "type").Str != "error" || gjson.Get(body, "error.type").Str != c.kind || gjson.Get(body, "request_id").Str != "abc" {
					t.Errorf("%d %s", status, body)
				}
				retry, id := "", ""
				for _, h := range s.immediate.GetHeaders().GetSetHeaders() {
					if h.GetHeader().GetKey() == "retry-after" {
						retry = string(h.GetHeader().GetRawValue())
					}
					if h.GetHeader().GetKey() == "request-id" {
						id = string(h.GetHeader().GetRawValue())
					}
				}
				if id != "abc" {
					t.Errorf("request-id is %q", id)
				}
				if retry != c.retry {
					t.Errorf("retry-after is %q, want %q", retry, c.retry)
				}
			})
		})
	}
}

// TestMessagesBreak shows that an error in the middle of a stream is an event.
func TestMessagesBreak(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo(messagesPath, strings.Replace(messagesQuestion, `,`, `,"stream":true,`, 1))
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.expectLike("local headers ", "local body event: message_start")
		s.answerBody(`data: {"error":{"message":"x","code":500}}`+"\n\n", false)
		got := s.expectLike("local body event: error\n")
		if !strings.Contains(got[0], `{"type":"error","error":{"type":"api_error",`) {
			t.Errorf("the event: %s", got[0])
		}
	})
}
