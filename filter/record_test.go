package filter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// journaled is a script whose server's log is kept.
func journaled(t *testing.T, change func(*Config)) (*script, *bytes.Buffer) {
	t.Helper()
	s, out := newScript(t, change), &bytes.Buffer{}
	s.x.s.log.SetOutput(out)
	s.x.s.log.SetFormatter(&logrus.JSONFormatter{})
	s.x.s.log.SetLevel(logrus.DebugLevel)
	return s, out
}

// lines are the log's lines, whose fields stand in docs/operations.md.
func lines(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for l := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(l), &fields); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fields)
	}
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		for field := range l {
			if !slices.Contains([]string{"msg", "level", "time"}, field) && !bytes.Contains(page, []byte("`"+field+"`")) {
				t.Errorf("docs/operations.md has no `%s`", field)
			}
		}
	}
	return lines
}

// logged runs one request to its end and gives the log's lines.
func logged(t *testing.T, change func(*Config)) []map[string]any {
	t.Helper()
	s, out := journaled(t, change)
	s.post()
	s.body(ask(""), true)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>analysis<|message|>Hm")...)+event("stop", tokens("<|end|><|start|>assistant<|channel|>final<|message|>Hello<|end|><|end|><|return|>")...)+usageEvent+doneEvent, true)
	s.x.close(s.now)
	return lines(t, out)
}

// wantLine checks fields of the one line; nil stands for a field that is not there.
func wantLine(t *testing.T, out *bytes.Buffer, want map[string]any) {
	t.Helper()
	all := lines(t, out)
	if len(all) != 1 {
		t.Fatalf("%d lines: %v", len(all), all)
	}
	for field, value := range want {
		if all[0][field] != value {
			t.Errorf("%s is %v, want %v", field, all[0][field], value)
		}
	}
}

// The line of a request that an engine fails says which one, and what it or Envoy
// in its place has said.
func TestLogLineOfAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(s *script)
		want   map[string]any
	}{
		"the engine is down": {func(s *script) {
			s.answer(false, ":status=503", "content-type=text/plain")
			s.answerBody("upstream connect error or disconnect/reset before headers. reset reason: remote connection failure", true)
		}, map[string]any{"cause": "engine status 503: upstream connect error or disconnect/reset before headers. reset reason: remote connection failure"}},
		"another service answers": {func(s *script) {
			s.answer(false, ":status=200", "content-type=text/html; charset=utf-8")
			s.answerBody("<html>hello</html>", true)
		}, map[string]any{"cause": `the answer's content type is "text/html; charset=utf-8"`, "error": "The engine ended its reply before the answer was complete. Send the request again."}},
		"its answer cannot be read": {func(s *script) {
			s.answer(false, ":status=200", sse)
			s.answerBody("data: x\n\n", true)
		}, map[string]any{"cause": `the answer's content type is "text/event-stream"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, out := journaled(t, nil)
			s.post()
			s.body(ask(""), true)
			c.answer(s)
			s.x.close(s.now)
			c.want["engine"], c.want["level"], c.want["outcome"] = "main", "warning", "failed"
			wantLine(t, out, c.want)
		})
	}
}

// A tool server that is down is told, also where no engine has been asked.
func TestLogLineOfATool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields string
		want   map[string]any
	}{
		"the tool has to be called": {`,"tool_choice":{"type":"mcp","server_label":"docs"}`, map[string]any{"outcome": "refused", "status": 424.0, "model_calls": nil}},
		"it need not be called":     {"", map[string]any{"outcome": "cut", "status": nil, "model_calls": 1.0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, out := journaled(t, func(c *Config) {
				c.Loopback = "unix:///nowhere/loopback"
				c.TenantHeader = "x-tenant"
				c.Tools.Servers = []ToolServer{{Label: "docs", URL: "http://127.0.0.1:1"}}
			})
			s.request(false, ":method=POST", ":path=/v1/responses", "content-type=application/json", "x-request-id=abc", "x-tenant=acme")
			s.body(toolBody+c.fields+"}", true)
			d := <-s.x.jobs.done
			s.x.step(s.now)
			s.x.run.did(d)
			s.x.close(s.now)
			c.want["level"], c.want["tenant"], c.want["engine"] = "warning", "acme", "main"
			c.want["tool_calls"], c.want["tool_errors"] = nil, 1.0
			wantLine(t, out, c.want)
			if response, _ := lines(t, out)[0]["response"].(string); !strings.HasPrefix(response, "resp_") {
				t.Errorf("response %q", response)
			}
			if fault, _ := lines(t, out)[0]["fault"].(string); !strings.Contains(fault, "docs: ") || !strings.Contains(fault, "refused") {
				t.Errorf("fault %q", fault)
			}
		})
	}
}

// Every metric stands in docs/operations.md.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		registry.Describe(all)
	}()
	n := 0
	for d := range all {
		name := regexp.MustCompile(`"(harmony_\w+)"`).FindStringSubmatch(d.String())
		if n++; name == nil || !bytes.Contains(page, []byte("`"+name[1]+"`")) {
			t.Errorf("docs/operations.md has not %s", d)
		}
	}
	if n < 15 {
		t.Errorf("only %d metrics found", n)
	}
}

// What the store does not answer is counted; what it says is not, nor what its
// client has given up.
func TestStoreFailures(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	s := countedStore{brokenStore{}, func(operation string) { counts[operation]++ }}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for id, ctx := range map[string]context.Context{"": t.Context(), "gone": gone, "none": t.Context(), "late": t.Context()} {
		if _, err := s.Get(ctx, "", id); err == nil {
			t.Errorf("no error for %q", id)
		}
	}
	if err := s.PutTexts(t.Context(), "", nil); err == nil {
		t.Error("no error of PutTexts")
	}
	if diff := cmp.Diff(map[string]int{"get_response": 2, "put_texts": 1}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// brokenStore does not answer, but for some responses.
type brokenStore struct{ store.Store }

func (brokenStore) Get(ctx context.Context, _, id string) (*store.Response, error) {
	switch id {
	case "none":
		return nil, fmt.Errorf("read: %w", store.ErrNotFound)
	case "late":
		return nil, context.DeadlineExceeded
	}
	return nil, errors.Join(errBroken, ctx.Err())
}

func (brokenStore) PutTexts(context.Context, string, map[string]string) error { return errBroken }

func TestOneLogLineARequest(t *testing.T) {
	lines := logged(t, nil)
	if len(lines) != 1 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for field, want := range map[string]any{
		"msg": "request", "level": "info", "api": "chat", "engine": "main", "response": "chatcmpl-abc", "model_calls": 1.0, "fault": nil, "cause": nil, "tenant": nil,
		"model": "openai/gpt-oss-20b", "harmony": true, "outcome": "ok", "request_id": "abc",
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
