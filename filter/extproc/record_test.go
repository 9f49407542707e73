package extproc

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// The log lines of exchanges. docs/operations.md lists their fields.

// logLine ends the exchange, and returns the one line of the log.
func (s *scripted) logLine() gjson.Result {
	s.t.Helper()
	s.leave()
	lines := s.lines(s.t)
	if len(lines) != 1 {
		s.t.Fatalf("%d lines: %v", len(lines), lines)
	}
	s.checkFields(lines)
	return lines[0]
}

// checkFields checks that the fields of the lines are documented.
func (s *scripted) checkFields(lines []gjson.Result) {
	s.t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range lines {
		for field := range l.Map() {
			if !slices.Contains([]string{"msg", "level", "time"}, field) && !bytes.Contains(page, []byte("`"+field+"`")) {
				s.t.Errorf("docs/operations.md does not have `%s`", field)
			}
		}
	}
}

// expectFields compares fields of a line; nil stands for one that is not there.
func (s *scripted) expectFields(l gjson.Result, want map[string]any) {
	s.t.Helper()
	for field, value := range want {
		if got := l.Get(field).Value(); got != value {
			s.t.Errorf("%s is %v, want %v", field, got, value)
		}
	}
}

// complete makes one chat reply to its end.
func (s *scripted) complete() {
	s.t.Helper()
	s.posted("")
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>analysis<|message|>Hm")...)+event("stop", tokens("<|end|><|start|>assistant<|channel|>final<|message|>Hello<|end|><|end|><|return|>")...)+usageEvent+doneEvent, true)
}

func TestOneLogLineARequest(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.complete()
		l := s.logLine()
		s.expectFields(l, map[string]any{
			"msg": "request", "level": "info", "api": "chat", "engine": "main", "response": "chatcmpl-abc", "model_calls": 1.0, "fault": nil, "cause": nil, "tenant": nil,
			"model": "openai/gpt-oss-20b", "harmony": true, "outcome": "ok", "request_id": "abc",
			"cached_tokens": 64.0, "analysis_tokens": 1.0, "text_tokens": 1.0, "output_tokens": 14.0, "finish": "stop",
		})
		if !l.Get("repairs").Exists() {
			t.Error("the repair of the stray <|end|> is not logged")
		}
		for field, value := range l.Map() {
			if strings.Contains(value.String(), "Hello") || strings.Contains(value.String(), "Hi") {
				t.Errorf("%s has content: %q", field, value)
			}
		}
	})
}

func TestContentIsLoggedWhereConfigured(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.cfg.Log.Content = true }, func(s *scripted) {
		s.complete()
		s.leave()
		lines := s.lines(t)
		if len(lines) != 2 {
			t.Fatalf("%d lines: %v", len(lines), lines)
		}
		s.checkFields(lines)
		prompt, output := lines[0].Get("prompt").Str, lines[0].Get("output_0").Str
		if !strings.HasSuffix(prompt, "<|start|>user<|message|>Hi<|end|><|start|>assistant") || !strings.Contains(output, "<|message|>Hello<|end|>") {
			t.Errorf("prompt %q, output %q", prompt, output)
		}
	})
}

func TestLogLineOfAPassedRequest(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.get("GET", "/v1/files?x=1", "x-request-id=abc")
		s.wait(time.Second)
		s.expectFields(s.logLine(), map[string]any{"msg": "passed through", "level": "debug", "request_id": "abc", "path": "/v1/files", "harmony": false, "seconds": 1.0})
	})
}

// The line of a request that an engine fails names the engine, and what it, or
// Envoy in its place, has answered.
func TestLogLineOfAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(s *scripted)
		want   map[string]any
	}{
		// Its Envoy has tried others.
		"the engine is down": {func(s *scripted) {
			s.answer(false, ":status=503", "content-type=text/plain")
			s.answerBody("upstream connect error or disconnect/reset before headers. reset reason: remote connection failure", true)
		}, map[string]any{"cause": "engine status 503: upstream connect error or disconnect/reset before headers. reset reason: remote connection failure"}},
		"another service answers": {func(s *scripted) {
			s.answer(false, ":status=200", "content-type=text/html; charset=utf-8")
			s.answerBody("<html>hello</html>", true)
		}, map[string]any{"cause": `the answer's content type is "text/html; charset=utf-8"`, "error": "The engine ended its reply before the answer was complete. Send the request again."}},
		"its answer cannot be read": {func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.answerBody("data: x\n\n", true)
		}, map[string]any{"cause": `the answer's content type is "text/event-stream"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				s.posted("")
				c.answer(s)
				for _, s.call = range s.loopback.waiting() { // the retry, where there is one
					c.answer(s)
				}
				c.want["engine"], c.want["level"], c.want["outcome"] = "main", "warning", "failed"
				s.expectFields(s.logLine(), c.want)
			})
		})
	}
}

// A tool server that is down is logged, also where no engine has been asked.
func TestLogLineOfATool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields string
		want   map[string]any
	}{
		"the tool has to be called": {`,"tool_choice":{"type":"mcp","server_label":"docs"}`, map[string]any{"outcome": "rejected", "status": 424.0, "model_calls": nil}},
		"it need not be called":     {"", map[string]any{"outcome": "failed", "status": 502.0, "model_calls": 1.0}}, // the engine is lost too
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(w *wiring) {
				w.cfg.TenantHeader = "x-tenant"
				w.cfg.Tools.Servers = []config.ToolServer{{Label: "docs", URL: "http://127.0.0.1:1"}}
				options, err := w.cfg.Tools.Options(func(string) (string, bool) { return "", false })
				if err != nil {
					t.Fatal(err)
				}
				w.tools = tools.New(options)
			}
			script(t, change, func(s *scripted) {
				defer s.wire.tools.Close()
				s.postTo("/v1/responses", `{"model":"gpt-oss","input":"hi","tools":[{"type":"mcp","server_label":"docs"}]`+c.fields+"}", "x-tenant=acme")
				if c.fields == "" {
					s.toEngine()
					s.loses()
					s.called()
					s.loses()
				}
				l := s.logLine()
				c.want["level"], c.want["tenant"], c.want["engine"] = "warning", "acme", "main"
				c.want["tool_calls"], c.want["tool_errors"] = nil, 1.0
				s.expectFields(l, c.want)
				if !strings.HasPrefix(l.Get("response").Str, "resp_") {
					t.Errorf("response %q", l.Get("response"))
				}
				if fault := l.Get("fault").Str; !strings.Contains(fault, "docs: ") || !strings.Contains(fault, "refused") {
					t.Errorf("fault %q", fault)
				}
			})
		})
	}
}
