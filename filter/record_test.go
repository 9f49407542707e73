package filter

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

// logged runs one request to its end and gives the log's lines.
func logged(t *testing.T, change func(*Config)) []map[string]any {
	t.Helper()
	s := newScript(t, change)
	var out bytes.Buffer
	s.x.s.log.SetOutput(&out)
	s.x.s.log.SetFormatter(&logrus.JSONFormatter{})
	s.x.s.log.SetLevel(logrus.DebugLevel)
	s.post()
	s.body(ask(""), true)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>analysis<|message|>Hm")...)+event("stop", tokens("<|end|><|start|>assistant<|channel|>final<|message|>Hello<|end|><|end|><|return|>")...)+usageEvent+doneEvent, true)
	s.x.close(s.now)
	var lines []map[string]any
	for l := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(l), &fields); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fields)
	}
	return lines
}

func TestOneLogLineARequest(t *testing.T) {
	lines := logged(t, nil)
	if len(lines) != 1 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for field, want := range map[string]any{
		"msg": "request", "api": "chat", "model": "openai/gpt-oss-20b", "harmony": true, "outcome": "ok", "request_id": "abc",
		"cached_tokens": 64.0, "analysis_tokens": 1.0, "text_tokens": 1.0, "output_tokens": 14.0, "finish": "stop",
	} {
		if lines[0][field] != want {
			t.Errorf("%s is %v, want %v", field, lines[0][field], want)
		}
	}
	if lines[0]["repairs"] == nil {
		t.Error("the stray <|end|> is not told")
	}
	for field, value := range lines[0] {
		if text, ok := value.(string); ok && (strings.Contains(text, "Hello") || strings.Contains(text, "Hi")) {
			t.Errorf("%s has content: %q", field, text)
		}
	}
}

func TestContentIsLoggedWhereAsked(t *testing.T) {
	lines := logged(t, func(c *Config) { c.Log.Content = true })
	if len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	prompt, output := lines[0]["prompt"].(string), lines[0]["output_0"].(string)
	if !strings.HasSuffix(prompt, "<|start|>user<|message|>Hi<|end|><|start|>assistant") || !strings.Contains(output, "<|message|>Hello<|end|>") {
		t.Errorf("prompt %q, output %q", prompt, output)
	}
}
