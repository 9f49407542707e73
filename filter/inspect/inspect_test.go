package inspect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var started = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// taped is the record of an exchange with two calls and a tool, in which every event takes
// a millisecond.
func taped(id, model, outcome string) *record.Record {
	now := started
	tape := record.NewTape(record.Record{
		ID: id, Tenant: "acme", Started: started, Request: record.Request{Method: "POST", Path: "/v1/responses", Body: record.NewText([]byte(`{"input":"<script>"}`))},
		Target: record.Target{API: "responses", Model: model},
	}, 1<<20, func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	})
	tokens := func(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }
	prompt := tokens("<|start|>system<|message|>You.<|end|><|start|>user<|message|>Weather?<|end|><|start|>assistant")
	tape.Call(&engine.Request{ID: engine.CallID{Request: id}, Prompt: prompt, N: 1}, 0)
	tape.Answer(200, func(string) string { return "" }, nil)
	tape.Chunks([]engine.Chunk{{Tokens: tokens("<|channel|>commentary to=functions.f"), Usage: &engine.Usage{CachedTokens: 4}, Logprobs: []engine.Logprob{{Value: -0.5}}}})
	tape.Chunks([]engine.Chunk{{Tokens: tokens(" <|constrain|>json<|message|>{}<|call|>"), Finish: engine.FinishStop}})
	tape.Happened(record.KindEnd)
	tape.Tool(tools.Job{Server: &tools.Server{Label: "docs"}, Tool: "f"}, func() tools.Result { return tools.Result{Text: "sun"} })
	tape.Call(&engine.Request{ID: engine.CallID{Number: 1, Request: id}, Prompt: append(slices.Clone(prompt), tokens("<|channel|>final<|message|>")...), N: 1}, 0)
	tape.Chunks([]engine.Chunk{{Tokens: tokens("Sun.")}})
	tape.Sent([]byte("data: Sun.\n\n"))
	tape.Broken(record.AtConnection, http.ErrAbortHandler)
	r := tape.Ended(record.Result{Outcome: outcome, Status: 200, Response: "resp_" + id, Repairs: map[string]int{"missing_end": 1}})
	return &r
}

func TestOf(t *testing.T) {
	t.Parallel()
	v := Of(taped("a", "gpt-oss", "ok"))
	if len(v.Calls) != 2 || v.Reply != "data: Sun.\n\n" {
		t.Fatalf("%+v", v)
	}
	first, second := &v.Calls[0], &v.Calls[1]
	if got, want := brief(first.Output), "0 assistant|commentary|functions.f|json|{}\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if first.Cached == nil || *first.Cached != 4 || first.Ended != "stop" || first.Tokens == 0 {
		t.Errorf("the first call: %+v", first)
	}
	if p := first.Output[0].Pieces[0]; p.Text != "<|channel|>" || p.Kind != Special || p.At != 3000 || p.Logprob == nil || *p.Logprob != -0.5 {
		t.Errorf("the first token: %+v", p)
	}
	if brief(second.Prompt[:2]) != brief(first.Prompt[:2]) || second.Shared != first.Tokens || !strings.HasPrefix(second.Ended, "broken: connection") {
		t.Errorf("the second call: %+v", second)
	}
	want := []Step{
		{"decode", "", 0, 0, 1000},
		{"queue", "-0-a", 1, 1000, 3000},
		{"generate", "-0-a", 1, 3000, 4000},
		{"tool", "docs.f", 0, 7000, 8000},
		{"queue", "-1-a", 2, 9000, 10000},
		{"generate", "-1-a", 2, 10000, 11000},
		{"end", "", 0, 12000, 13000},
	}
	if diff := cmp.Diff(want, v.Steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	redacted := record.Redact(taped("a", "gpt-oss", "ok"))
	if v := Of(&redacted); len(v.Calls) != 2 || len(v.Steps) != len(want) || len(v.Calls[0].Output) != 0 {
		t.Errorf("of a redacted record: %+v", v)
	}
}

// records is a source.
type records struct{ ended, live []*record.Record }

func (r records) Records() []*record.Record { return r.ended }
func (r records) Live(int) (all []record.Record) {
	for _, l := range r.live {
		all = append(all, *l)
	}
	return all
}

func TestHandler(t *testing.T) {
	t.Parallel()
	later := taped("b", "other", "failed")
	later.Started = started.Add(time.Second)
	next := taped("c", "gpt-oss", "ok")
	next.Started = started.Add(2 * time.Second)
	source := records{ended: []*record.Record{taped("a", "gpt-oss", "ok"), later, next}, live: []*record.Record{taped("live", "gpt-oss", "")}}
	h := Handler(source, "")
	get := func(path string) (status int, body string, header http.Header) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = "127.0.0.1:9003"
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header()
	}
	for path, want := range map[string]string{
		"":                       "live c b a",
		"?model=gpt-oss":         "live c a",
		"?outcome=failed":        "b",
		"?tenant=acme":           "live c b a",
		"?tenant=other":          "",
		"?repair=missing_end":    "live c b a",
		"?repair=any&outcome=ok": "c a",
		"?repair=other":          "",
		"?api=chat":              "",
		"?limit=2":               "live c",
		"?q=RESP_B":              "b",
		"?q=weather%3F":          "live c b a",
		"?q=+weather?++":         "live c b a",
		"?q=weather&model=other": "b",
		"?q=sun":                 "",
	} {
		status, body, _ := get("/inspector/records" + path)
		var lines []Line
		if err := json.Unmarshal([]byte(body), &lines); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		ids := make([]string, len(lines))
		for i := range lines {
			ids[i] = lines[i].ID
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	status, body, header := get("/inspector/records/c")
	var x Shown
	if err := json.Unmarshal([]byte(body), &x); err != nil || status != 200 || x.ID != "c" || len(x.View.Calls) != 2 {
		t.Fatalf("%d %v %s", status, err, body)
	}
	if x.Question != "Weather?" {
		t.Errorf("the question: %q", x.Question)
	}
	if !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") || header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", header)
	}
	if status, body, _ := get("/inspector/records/c?raw=1"); status != 200 || !strings.Contains(body, `"format":1`) {
		t.Errorf("the record itself: %d %s", status, body)
	}
	for path, want := range map[string]int{"/inspector/": 200, "/inspector/inspector.js": 200, "/inspector/inspector.css": 200, "/inspector/none": 404, "/inspector/records/none": 404, "/inspector/records?limit=x": 400, "/inspector/../records": 404} {
		if status, _, _ := get(path); status != want && status != http.StatusMovedPermanently && status != http.StatusTemporaryRedirect {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// With a token, data needs it, and the page does not.
func TestToken(t *testing.T) {
	t.Parallel()
	h := Handler(records{ended: []*record.Record{taped("a", "gpt-oss", "ok")}}, "opensesame")
	for _, c := range []struct {
		path, sent string
		want       int
	}{
		{"/inspector/", "", 200},
		{"/inspector/records", "", 401},
		{"/inspector/records", "Bearer wrong", 401},
		{"/inspector/records", "opensesame", 401},
		{"/inspector/records", "Bearer opensesame", 200},
		{"/inspector/records/a", "", 401},
		{"/inspector/records/a?raw=1", "", 401},
		{"/inspector/records/a", "Bearer opensesame", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
		r.Header.Set("Authorization", c.sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || w.Code == 401 && strings.Contains(w.Body.String(), "gpt-oss") {
			t.Errorf("%s with %q: %d", c.path, c.sent, w.Code)
		}
	}
}

// Without a token, no page of another site reads records by a name of its own that leads to
// the admin port.
func TestHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		token, host string
		want        int
	}{
		{"", "127.0.0.1:9003", 200},
		{"", "[::1]:9003", 200},
		{"", "10.1.2.3", 200},
		{"", "localhost:9003", 200},
		{"", "attacker.example:9003", 403},
		{"", "127.0.0.1.attacker.example", 403},
		{"", "", 403},
		{"opensesame", "inspector.example", 200},
	} {
		h := Handler(records{ended: []*record.Record{taped("a", "gpt-oss", "ok")}}, c.token)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/inspector/records/a", nil)
		r.Host = c.host
		r.Header.Set("Authorization", "Bearer "+c.token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || w.Code == 403 && strings.Contains(w.Body.String(), "gpt-oss") {
			t.Errorf("host %q, token %q: %d", c.host, c.token, w.Code)
		}
	}
}

// The turn before is the one whose prompt shares most, of the same tenant and model.
func TestBefore(t *testing.T) {
	t.Parallel()
	with := func(id, tenant string, second int, text string) *record.Record {
		tape := record.NewTape(record.Record{ID: id, Tenant: tenant, Started: started.Add(time.Duration(second) * time.Second)}, 1<<20, time.Now)
		tape.Call(&engine.Request{Prompt: harmony.AppendEncode(nil, text), N: 1}, 0)
		r := tape.Ended(record.Result{})
		return &r
	}
	long := strings.Repeat(" word", 100)
	now := with("now", "a", 9, long+" four five")
	others := []*record.Record{with("one", "a", 1, long), with("two", "a", 2, long+" four"), with("tenant", "b", 3, long+" four five"), with("short", "a", 4, " word"), with("later", "a", 10, long+" four five"), now}
	if got := before(now, others); got != "two" {
		t.Errorf("%q", got)
	}
	if got := before(others[3], others); got != "" {
		t.Errorf("a short prompt has %q", got)
	}
}
