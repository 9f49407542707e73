package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var started = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// clock is a clock that goes on by a millisecond whenever it is read.
func clock() func() time.Time {
	now := started
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// secret is a text that no redacted record has.
const secret = "planted-secret-4711"

// play takes down one event of each kind, with a secret in each text.
func play(t *Tape) {
	t.ID("resp_1")
	t.Clock(started)
	t.Call(&engine.Request{ID: engine.CallID{Request: "resp_1-0"}, Prompt: harmony.AppendEncode(nil, "Say "+secret+" twice."), N: 1, MaxTokens: 10}, 0)
	t.Call(&engine.Request{ID: engine.CallID{Request: "resp_1-1"}, Prompt: harmony.AppendEncode(nil, "Say "+secret+" twice. No."), N: 1, MaxTokens: 10}, 1)
	t.Answer(200, func(name string) string { return map[string]string{"content-type": "text/event-stream"}[name] }, &engine.Usage{CachedTokens: 3})
	t.Happened(KindPrefill)
	t.Chunks([]engine.Chunk{{
		Tokens: harmony.AppendEncode(nil, secret), Finish: engine.FinishStop, Usage: &engine.Usage{CachedTokens: 16},
		Logprobs: []engine.Logprob{{Value: -1, Top: []engine.TokenLogprob{{Token: 5, Logprob: -1}}}},
	}})
	t.Happened(KindEnd)
	t.Broken(AtBody, apierror.New(502, "engine_error", secret, "The engine said "+secret))
	t.Broken(AtConnection, errors.New(secret))
	t.Failed(apierror.New(503, "shutdown", "", "The end: %s", secret))
	t.Job(2)
	t.Timer("idle")
	t.Headers([]engine.Header{{Name: "content-type", Value: "text/event-stream"}})
	t.Sent([]byte("data: " + secret))
	t.Refused(apierror.Invalid("input", "Not %s.", secret))
	_, _ = t.Access("get_texts", json.RawMessage(`["tenant",["`+secret+`"]]`), func() (json.RawMessage, error) {
		return json.RawMessage(`{"` + secret + `":"` + secret + `","id":"` + secret + `"}`), nil
	})
	t.Tool(tools.Job{Server: &tools.Server{Label: secret}, Tool: secret, Arguments: `{"q":"` + secret + `"}`}, func() tools.Result {
		return tools.Result{Text: secret, Content: []tools.Part{{Type: "text", Text: secret}}, Error: secret, Tools: []tools.Tool{{Name: "find", InputSchema: json.RawMessage(`{"` + secret + `":1}`)}}}
	})
	t.Happened(KindCancel)
}

// testRecord is a record with all kinds of events.
func testRecord() Record {
	tape := NewTape(Record{
		ID: "r1", Tenant: "acme", Started: started,
		Request: Request{
			Method: "POST", Path: "/v1/responses?q=" + secret, Header: map[string]string{"content-type": "application/json", "x-custom": secret},
			Body: NewText([]byte(`{"model":"gpt-oss","input":[{"type":"message","role":"user","content":"` + secret + `"}],"metadata":{"` + secret + `":"` + secret + `"},"temperature":0.5,"user":4711}`)),
		},
		Target:   Target{API: "responses", Model: "gpt-oss", Engine: "main", Kind: "vllm"},
		Settings: Settings{Session: secret},
	}, 1<<20, clock())
	play(tape)
	return tape.Ended(Result{Outcome: "ok", Status: 200, Error: secret})
}

// A record is the same when it has been written and read.
func TestFormat(t *testing.T) {
	t.Parallel()
	r := testRecord()
	var file bytes.Buffer
	if err := Write(&file, &r); err != nil {
		t.Fatal(err)
	}
	var got []Record
	if err := Read(&file, func(r *Record) { got = append(got, *r) }); err != nil || len(got) != 1 {
		t.Fatalf("%d records: %v", len(got), err)
	}
	want, _ := json.MarshalIndent(r, "", " ")
	is, _ := json.MarshalIndent(got[0], "", " ")
	if diff := cmp.Diff(string(want), string(is)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(r.Events) != 19 || got[0].Events[1].Clock != started {
		t.Errorf("%d events", len(r.Events))
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"format":2}`: "use a newer one", `{"a":1}`: `"format" is missing`, `[1]`: "it is no record", "\x1f\x8b\x00": "not complete", `{"format":1`: "it is no record",
		`{"format":1,"events":[{"kind":"answer"}]}`: "damaged", `{"format":1,"events":[{"kind":"refused"}]}`: "damaged",
		`{"format":1,"events":[{"kind":"call","call":{"shared":-1}}]}`: "negative", `{"format":1,"events":[{"kind":"job","job":-1}]}`: "negative",
	} {
		if err := Read(strings.NewReader(text), func(*Record) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := Read(strings.NewReader(""), func(*Record) {}); err != nil {
		t.Errorf("no record: %v", err)
	}
}

// What a redacted record keeps is structure; no text of a client, a model, a tool or a
// store is in it.
func TestRedact(t *testing.T) {
	t.Parallel()
	r := testRecord()
	redacted := Redact(&r)
	text, err := json.Marshal(redacted)
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.Index(string(text), secret); i >= 0 {
		t.Errorf("a secret is in …%s…", text[max(0, i-100):min(len(text), i+50)])
	}
	for _, id := range harmony.AppendEncode(nil, secret) {
		if strings.Contains(string(text), strconv.FormatUint(uint64(id), 10)) && id > 9999 {
			t.Errorf("the token %d is there", id)
		}
	}
	if strings.Contains(string(text), "4711") {
		t.Error("a number that says who asks is there")
	}
	if len(redacted.Events) != len(r.Events) || !redacted.Redacted || r.Redacted {
		t.Errorf("%d events of %d", len(redacted.Events), len(r.Events))
	}
	for i := range r.Events {
		was, is := &r.Events[i], &redacted.Events[i]
		if was.At != is.At || was.Kind != is.Kind || was.Text.Len() != is.Text.Len() {
			t.Errorf("event %d: %+v became %+v", i, was, is)
		}
	}
	if call := redacted.Events[3].Call; call.Count != r.Events[3].Call.Count || call.Shared == 0 {
		t.Errorf("the lengths of a call are gone: %+v", call)
	}
	if body := string(redacted.Request.Body.Bytes()); !strings.Contains(body, `"temperature":0.5`) || !strings.Contains(body, `"role":"user"`) || !strings.Contains(body, `"content":"[19 bytes]"`) {
		t.Errorf("the structure of the body is gone: %s", body)
	}
	again := Redact(&redacted)
	twice, _ := json.Marshal(again)
	if len(twice) == 0 || strings.Contains(string(twice), secret) {
		t.Errorf("redacted twice: %s", twice)
	}
}

func TestTextJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text Text
		want string
	}{
		{NewText([]byte("a\"<é")), `"a\"\u003cé"`},
		{NewText([]byte("\xff\x00")), `{"base64":"/wA="}`},
		{NewText([]byte("secret")).Redacted(), `{"bytes":6}`},
		{Text{}, `""`},
	} {
		got, err := json.Marshal(c.text)
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %s, %v", c.text, got, err)
		}
		var back Text
		if err := json.Unmarshal(got, &back); err != nil || back.Len() != c.text.Len() || back.String() != c.text.String() {
			t.Errorf("%s became %q: %v", got, back, err)
		}
	}
	var bad Text
	if json.Unmarshal([]byte("1"), &bad) == nil || json.Unmarshal([]byte(`{"bytes":-5}`), &bad) != nil || bad.Len() != 0 {
		t.Error("a number is no text, and no length is negative")
	}
}

// The methods of a tape that is not there do nothing.
func TestNoTape(t *testing.T) {
	t.Parallel()
	var tape *Tape
	if tape.ID("x") != "x" || tape.Clock(started) != started {
		t.Error("an id or a time is lost")
	}
	tape.Call(nil, 0)
	tape.Answer(200, nil, nil)
	tape.Chunks([]engine.Chunk{{}})
	tape.Happened(KindEnd)
	tape.Broken(AtBody, errors.New("x"))
	tape.Failed(nil)
	tape.Job(1)
	tape.Timer("idle")
	tape.Headers(nil)
	tape.Sent([]byte("x"))
	tape.Refused(nil)
	tape.Set(nil)
	var none *Recorder
	none.End(tape, Result{})
	none.Drop(tape)
	if none.Begin("", "", "on", nil) != nil || none.Header() != "" || none.Live(0) != nil {
		t.Error("no recorder records")
	}
}

// A record that becomes too long is cut, and takes no more memory.
func TestTapeIsCut(t *testing.T) {
	t.Parallel()
	tape := NewTape(Record{Started: started}, 1000, clock())
	for range 100 {
		tape.Sent(make([]byte, 100))
	}
	if r := tape.Ended(Result{}); !r.Cut || len(r.Events) != 1000/(100+eventBytes) {
		t.Errorf("cut: %t, %d events", r.Cut, len(r.Events))
	}
	tape.Sent([]byte("late"))
	if r := tape.Ended(Result{}); len(r.Events) != 1000/(100+eventBytes) {
		t.Error("an event came after the end")
	}
}
