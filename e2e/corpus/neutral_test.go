package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// What other people wrote, and what is secret, is in no row. Words of the API, and how the request is
// written, are.
func TestNeutralBody(t *testing.T) {
	t.Parallel()
	const body = `{ "model":"gpt-oss-20b", "max_tokens":16384,
		"thinking":{"type":"enabled","budget_tokens":32000}, "reasoning":{"summary":"auto"},
		"metadata":{"user_id":"{\"session_id\":\"8a1fbd0e-0b5e-4f0e-9d9c-0f2b7d7c2f11\"}"},
		"system":"You are Product, made by Somebody.\nMail somebody@product.com.",
		"messages":[{"role":"user","content":"  "},{"role":"user","content":"secretword"},
			{"role":"assistant","tool_calls":[{"id":"call_0123456789abcdef0123","function":
				{"name":"read","arguments":"{\"path\": \"/home/somebody/key.pem\",\"colour_of_hat\":1.0}"}}]}],
		"tools":[{"type":"function","function":{"name":"read","description":"Reads secretword.","parameters":
			{"type":"object","required":["colour_of_hat"],"properties":{"colour_of_hat":{"type":"number","description":"Hat."}}}}}],
		"api_token":"sk-proj-0123456789abcdefghij0123456789" }`
	got := neutralBody(body, nil)
	for _, word := range []string{"Product", "omebody", "secretword", "8a1fbd0e", "0123456789", "colour_of_hat", "Hat"} {
		if strings.Contains(got, word) {
			t.Errorf("%q is left: %s", word, got)
		}
	}

	object := gjson.Parse(got)
	for path, want := range map[string]string{
		"model": "gpt-oss-20b", "thinking.type": "enabled", "reasoning.summary": "auto", "max_tokens": "16384",
		"messages.0.content": "  ", "tools.0.function.name": "read",
	} {
		if object.Get(path).String() != want {
			t.Errorf("%s is %s, want %s", path, object.Get(path), want)
		}
	}

	// The name of an argument is that of its property, and the text of the arguments stays as it is written.
	name := object.Get("tools.0.function.parameters.required.0").Str
	arguments := object.Get("messages.2.tool_calls.0.function.arguments").Str
	if !object.Get("tools.0.function.parameters.properties."+name).Exists() || !strings.HasPrefix(arguments, `{"path": "/code/`) ||
		!strings.HasSuffix(arguments, `.pem","`+name+`":1.0}`) {
		t.Errorf("the argument is %s: %s", name, arguments)
	}
	if kind := object.Get("messages.2.tool_calls.0.id").Str; !strings.HasPrefix(kind, "call_") || len(kind) != 25 {
		t.Errorf("the id is %s", kind)
	}
	if again := neutralBody(body, nil); again != got {
		t.Error("the same text does not become the same")
	}
}

// A recording becomes a row for each shape. A later request has references to what the reply has given, and
// a shape that is known has a version more.
func TestRecordings(t *testing.T) {
	t.Parallel()
	run := func(version, id, text string) []*stack.RecordedRequest {
		request := func(number int, body, reply string) *stack.RecordedRequest {
			return &stack.RecordedRequest{
				Client: "sdk", Version: version, Test: "T", Number: number, Method: "POST", Path: "/v1/responses",
				Body: body, Status: 200, Reply: reply,
			}
		}
		return []*stack.RecordedRequest{
			request(1, `{"input":"`+text+`"}`, `{"id":"`+id+`","output":[{"type":"message","content":[{"text":"Hi there."}]}]}`),
			request(2, `{"input":"other words"}`, `{"id":"resp_ffffffffffffffff"}`),
			request(3, `{"input":"more","previous_response_id":"`+id+`"}`, `{}`),
		}
	}
	rows := withRecordings(nil, [][]*stack.RecordedRequest{
		run("1.9.0", "resp_00000000000000000001", "one"), run("1.10.0", "resp_00000000000000000002", "one two"),
	})
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	if got := gjson.GetBytes(rows[1].Body, "previous_response_id").Str; got != "@1 resp_ 0" || !slices.Equal(rows[1].follows(), []int{1}) {
		t.Errorf("the second row continues %q", got)
	}
	if !slices.Equal(rows[0].Versions, []string{"1.10.0", "1.9.0"}) || !strings.Contains(rows[0].Output, "final<|message|>") {
		t.Errorf("the first row is of %q: %s", rows[0].Versions, rows[0].Output)
	}

	// Recorded again, nothing is new.
	again := withRecordings(rows, [][]*stack.RecordedRequest{run("1.10.0", "resp_00000000000000000003", "two")})
	if len(again) != 2 {
		t.Errorf("again there are %d rows", len(again))
	}
}

// Rows are read as they were written, with what they share.
func TestRowsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	tools := `[{"name":"` + strings.Repeat("x", sharedBytes) + `"}]`
	folder := t.TempDir()
	rows := make([]*row, 3)
	for i := range rows {
		rows[i] = &row{Number: i + 1, Method: "POST", Path: "/v1/messages", Body: json.RawMessage(`{"tools":` + tools + `,"n":1.0}`)}
	}
	if err := writeRows(folder, "sdk", rows); err != nil {
		t.Fatal(err)
	}
	read, err := readRows(folder, "sdk")
	if err != nil || len(read) != len(rows) {
		t.Fatalf("%d rows: %v", len(read), err)
	}
	for i, r := range read {
		if r.Number != i+1 || string(r.Body) != string(rows[i].Body) {
			t.Errorf("row %d: %s", r.Number, r.Body)
		}
	}
}

// Verdicts are read as they were written, whatever stands in prompts.
func TestVerdictsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long message\n\n.\n= 1\n## 2\nreason: x\n", 9)
	verdicts := []*verdict{
		{number: 1, status: "200", calls: []string{"call {}", long, "assistant"}},
		{number: 3, status: "400 invalid_request_error", reasons: []string{"200 → 400: so it is"}},
		{number: 4, status: "200, ignored: store", calls: []string{long, "", "assistant"}},
	}
	rows := []*row{{Number: 1}, {Number: 3}, {Number: 4}}
	read := readVerdicts(writeVerdicts(rows, verdicts))
	for _, v := range verdicts {
		if got := read[v.number]; got == nil || !got.same(v) || !slices.Equal(got.reasons, v.reasons) {
			t.Errorf("%d is read as %+v", v.number, got)
		}
	}
}
