package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

func TestRows(t *testing.T) {
	at := time.Date(2026, 11, 26, 10, 17, 2, 0, time.UTC)
	const request = "request"
	for _, tt := range []struct {
		name, message string
		level         logrus.Level
		fields        logrus.Fields
		want          string
	}{
		{"a reply", request, logrus.InfoLevel, logrus.Fields{
			"api": "chat", "outcome": "ok", "seconds": 1.2345, "model": "gpt-oss-20b", "prompt_tokens": 68, "output_tokens": 15,
			"cached_tokens": 64, "request_id": "abc", "finish": "stop",
		}, "10:17:02  chat       200     1234 ms  gpt-oss-20b  68 → 15 tokens, 64 cached\n"},
		{"nothing cached", request, logrus.InfoLevel, logrus.Fields{
			"api": "responses", "outcome": "ok", "seconds": 12.0, "model": "m", "prompt_tokens": 68, "output_tokens": 15, "cached_tokens": 0,
		}, "10:17:02  responses  200    12000 ms  m  68 → 15 tokens\n"},
		{"refused", request, logrus.InfoLevel, logrus.Fields{
			"api": "chat", "outcome": "rejected", "status": 400, "seconds": 0.01, "model": "m", "error": "No.",
			"cause": "engine status 400: …must be…", "prompt_tokens": 8,
		}, "10:17:02  chat       400       10 ms  m  8 → 0 tokens  No; engine status 400: …must be…; (all of it: --set log.content=true --log-level debug)\n"},
		{"canceled, repaired", request, logrus.InfoLevel, logrus.Fields{
			"api": "messages", "outcome": "canceled", "seconds": 0.0, "model": "m", "repairs": map[string]int{"b_c": 2, "a": 1}, "retries": 2, "finish": "length",
		}, "10:17:02  messages   200        0 ms  m  canceled; retries 2; repairs a 1, b_c 2; ended by its length\n"},
		{"no model", request, logrus.InfoLevel, logrus.Fields{"api": "models", "outcome": "ok", "seconds": 0.002, "model": ""}, "10:17:02  models     200        2 ms\n"},
		{"a line", "started", logrus.InfoLevel, logrus.Fields{"listen": "a:1", "admin": "b:2"}, "10:17:02  started  admin=b:2  listen=a:1\n"},
		{"an error first", "failed", logrus.ErrorLevel, logrus.Fields{"file": "f", "error": errors.New("one\ntwo")}, "10:17:02  failed: one two  file=f\n"},
		{"lists and mappings", "reloaded", logrus.InfoLevel, logrus.Fields{
			"changed": []string{"date", "log.level"}, "of": map[string][]int{"a": {1, 2}}, "none": nil, "took": 2 * time.Second, "all": [][]byte{},
		}, "10:17:02  reloaded  all=  changed=date, log.level  none=  of=a 1, 2  took=2s\n"},
		{"of Envoy", "said", logrus.WarnLevel, logrus.Fields{"from": "envoy"}, "10:17:02  envoy: said\n"},
		{"hostile", "x\n\x1b[2J", logrus.InfoLevel, logrus.Fields{"name": "\r\x07"}, "10:17:02  x ␛[2J  name=␍␇\n"},
	} {
		out, err := rows{}.Format(&logrus.Entry{Time: at, Level: tt.level, Message: tt.message, Data: tt.fields})
		if err != nil || string(out) != tt.want {
			t.Errorf("%s: %v\n%q, want\n%q", tt.name, err, out, tt.want)
		}
	}
}

// Colors are for terminals, and say how it went.
func TestRowsInColor(t *testing.T) {
	for status, want := range map[int]string{200: styleGood, 400: styleNote, 503: styleBad} {
		fields := logrus.Fields{"status": status, "outcome": "ok"}
		out, err := rows{painter{on: true}}.Format(&logrus.Entry{Message: "request", Data: fields})
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%d: %v, %q", status, err, out)
		}
	}
}

// On a terminal run has a row for each request and says what to do next. Standard output is
// the same as elsewhere.
func TestRunOnTerminal(t *testing.T) {
	r := startIn(t, true, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "1")
	base := strings.TrimPrefix(r.await(t, &r.stdout, "ready "), "ready ")
	for _, want := range []string{"  ask        envoy-harmony ask --url " + base + " Hello", "  inspector  off; --set inspector.enabled=true", "  stop       Ctrl-C"} {
		r.await(t, &r.stderr, want)
	}
	metrics := strings.Fields(r.await(t, &r.stderr, "  metrics    http://"))[1]
	if status, _ := get(t, http.MethodGet, metrics, ""); status != http.StatusOK {
		t.Errorf("the metrics answer with %d", status)
	}

	if status, text := get(t, http.MethodPost, base+"/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SAY It works."}]}`); status != http.StatusOK {
		t.Errorf("status %d, body %s", status, text)
	}
	if row := r.await(t, &r.stderr, " → "); !strings.Contains(row, "  chat       200  ") || !strings.Contains(row, "  gpt-oss-20b  ") || strings.Contains(row, "{") {
		t.Errorf("the row of the request is %q", row)
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	if want := "ready " + base + "\n"; r.stdout.String() != want {
		t.Errorf("standard output %q, want %q", r.stdout.String(), want)
	}
}

// Who asks for a format gets it on a terminal too.
func TestFormatOnTerminal(t *testing.T) {
	for format, want := range map[string]string{"json": `{"level":"warning"`, "text": "level=warning", "auto": "loopback is not set"} {
		var stderr lines
		p := program{stdout: &lines{}, stderr: &stderr, terminal: true}
		if exit := p.main(t.Context(), []string{"check", "--engine", "vllm", "--log-format", format}); exit != 0 {
			t.Errorf("%s: exit status %d: %s", format, exit, stderr.String())
		}
		if _, after, _ := strings.Cut(stderr.String(), "  "); !strings.HasPrefix(stderr.String(), want) && !strings.HasPrefix(after, want) && !strings.Contains(stderr.String(), " "+want) {
			t.Errorf("%s: %s", format, stderr.String())
		}
	}
}

func TestIsTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if isTerminal(file) || isTerminal(&lines{}) {
		t.Error("a file is no terminal")
	}
}

func TestNextSteps(t *testing.T) {
	cfg := config.Defaults()
	p := program{name: "bin/envoy-harmony"}
	steps := p.nextSteps(cfg, "127.0.0.1:10000", "127.0.0.1:1", "127.0.0.1:2")
	for _, want := range []string{"  ask        bin/envoy-harmony ask Hello\n", "  metrics    http://127.0.0.1:1/metrics\n", "  envoy      http://127.0.0.1:2/\n"} {
		if !strings.Contains(steps, want) {
			t.Errorf("no %q in\n%s", want, steps)
		}
	}

	cfg.Inspector.Enabled = true
	steps = p.nextSteps(cfg, "[::]:8080", "0.0.0.0:1", "127.0.0.1:2")
	for _, want := range []string{"ask --url http://127.0.0.1:8080/v1 Hello\n", "  inspector  http://127.0.0.1:1/inspector/\n", "OPENAI_BASE_URL=http://127.0.0.1:8080/v1  ANTHROPIC_BASE_URL=http://127.0.0.1:8080\n"} {
		if !strings.Contains(steps, want) {
			t.Errorf("no %q in\n%s", want, steps)
		}
	}
}

// The access log of Envoy is fields, and no JSON in a string. Its other lines are texts.
func TestLogOfEnvoy(t *testing.T) {
	log, logged := test.NewNullLogger()
	write := logOfEnvoy(log)
	write(`{"time":"2026-11-26T10:17:02.5Z","status":200,"path":"/v1/models","cluster":null,"harmony":{"api":"chat","cost":null}}`)
	write(`{"status":404,"harmony":{"api":null}}`)
	write("[warning] a line")
	write("{ no JSON")

	access, unknown, others := logged.AllEntries()[0], logged.AllEntries()[1], logged.AllEntries()[2:]
	if access.Message != "access" || access.Level != logrus.InfoLevel || access.Time.Second() != 2 {
		t.Errorf("the access log is %+v", access)
	}
	if _, null := access.Data["cluster"]; null || access.Data["status"] != 200.0 || access.Data["from"] != "envoy" || access.Data["path"] != "/v1/models" {
		t.Errorf("the access log has the fields %v", access.Data)
	}
	if metadata, _ := access.Data["harmony"].(map[string]any); len(metadata) != 1 || metadata["api"] != "chat" {
		t.Errorf("the metadata is %v", metadata)
	}
	if _, given := unknown.Data["harmony"]; given {
		t.Errorf("a request without metadata has %v", unknown.Data)
	}
	for i, want := range []string{"[warning] a line", "{ no JSON"} {
		if others[i].Message != want || others[i].Level != logrus.WarnLevel {
			t.Errorf("%q became %+v", want, others[i])
		}
	}
}
