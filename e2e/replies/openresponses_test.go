package replies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// What the suite of Open Responses demands, by the names of its tests. responsestest knows the
// schema of responses and events.
func TestOpenResponses(t *testing.T) {
	tests := newSuite(t)
	s := startSockets(t, "--config", openReasoning(t))
	user := func(text string) string { return `{"type":"message","role":"user","content":"` + text + `"}` }
	assistant := func(members, text string) string {
		return `{"type":"message","role":"assistant",` + members + `"content":"` + text + `"}`
	}

	hello := user("Say hello.")
	const weather = `"tools":[{"type":"function","name":"get_weather",` +
		`"parameters":{"type":"object","properties":{"location":{"type":"string"}}}}]`
	completed := map[string]struct{ input, more, kinds string }{
		"basic-response": {hello, "", "reasoning message"},
		"system-prompt":  {`{"type":"message","role":"system","content":"You are a pirate."},` + hello, "", "reasoning message"},
		"multi-turn": {
			user("I am Alice.") + "," + assistant("", "Hello Alice!") + "," + user("Who am I?"), "", "reasoning message",
		},
		"assistant-phase": {
			assistant(`"phase":"commentary",`, "I look.") + "," + assistant(`"phase":"final_answer",`, "Four.") + "," + hello,
			"", "reasoning message",
		},
		"response-output-phase-schema": {
			user("@@<channel>commentary<message>I look.<end><start>assistant<channel>final<message>Four.<return>@@"),
			"", "message:commentary message:final_answer",
		},
		"tool-calling": {
			user("What is the weather like in San Francisco?"),
			"," + weather,
			"reasoning function_call",
		},
		"image-input": {
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"What is it?"},` +
				`{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}]}`,
			"", "reasoning message",
		},
	}

	for name, tt := range completed {
		tests.run(t, name, func(t *testing.T) {
			status, r := s.d.Post(t, "/v1/responses", `{"model":"gpt-oss-20b","input":[`+tt.input+`]`+tt.more+`}`)
			output := r.Get("output").Array()
			kinds := make([]string, 0, len(output))
			for _, item := range output {
				kind := item.Get("type").Str
				// Final answers without a message before have a phase too: it counts where there are both.
				if phase := item.Get("phase").Str; strings.Contains(tt.kinds, ":") {
					kind += ":" + phase
				}
				kinds = append(kinds, kind)
			}
			err := responsestest.Object([]byte(r.Raw))
			if err != nil || status != http.StatusOK || r.Get("status").Str != "completed" || strings.Join(kinds, " ") != tt.kinds {
				t.Errorf("%d, %v, %q, in %s", status, err, kinds, r.Raw)
			}
		})
	}

	tests.run(t, "function-call-roundtrip", func(t *testing.T) {
		_, call := s.d.Post(t, "/v1/responses", `{"model":"gpt-oss-20b","input":[`+hello+`],"tool_choice":{"type":"function","name":"f"},`+
			`"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}]}`)
		id := call.Get(`output.#(type=="function_call").call_id`).Str
		// The tools are not sent again.
		_, r := s.d.Post(t, "/v1/responses", `{"model":"gpt-oss-20b","previous_response_id":"`+call.Get("id").Str+`",`+
			`"input":[{"type":"function_call_output","call_id":"`+id+`","output":"4"}]}`)
		if err := responsestest.Object([]byte(r.Raw)); id == "" || err != nil || !strings.Contains(r.Get("output").Raw, "RESULT: 4") {
			t.Errorf("%v, in %s\nafter %s", err, r.Raw, call.Raw)
		}
	})
	tests.run(t, "file-input", func(t *testing.T) {
		status, e := s.d.Post(t, "/v1/responses", `{"model":"gpt-oss-20b","input":[{"type":"message","role":"user","content":[`+
			`{"type":"input_text","text":"What is its title?"},`+
			`{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjEK"}]}]}`)
		if status != http.StatusBadRequest || e.Get("error.param").Str != "input[0].content[1]" {
			t.Errorf("%d, %s", status, e.Raw)
		}
	})
	tests.run(t, "previous-response-id", func(t *testing.T) {
		_, first := s.d.Post(t, "/v1/responses", `{"model":"gpt-oss-20b","input":"REMEMBER papaya\nSAY OK."}`)
		_, r := s.d.Post(t, "/v1/responses",
			`{"model":"gpt-oss-20b","previous_response_id":"`+first.Get("id").Str+`","input":"RECALL"}`)
		if err := responsestest.Object([]byte(r.Raw)); err != nil || !strings.Contains(r.Get("output").Raw, "RECALL:papaya") {
			t.Errorf("%v, in %s", err, r.Raw)
		}
	})
	tests.run(t, "streaming-response", func(t *testing.T) {
		_, stream := s.d.Respond(t, "gpt-oss-20b", "Count.", `,"stream":true`, openKey...)
		r, err := responsestest.Stream([]byte(stream))
		if err != nil || gjson.GetBytes(r, "status").Str != "completed" || !strings.Contains(stream, "response.reasoning.delta") {
			t.Errorf("%v, in %s", err, stream)
		}
	})
	tests.run(t, "tool-calling-streaming", func(t *testing.T) {
		_, stream := s.d.Respond(t, "gpt-oss-20b", "What is the weather like in San Francisco?", `,"stream":true,`+weather, openKey...)
		r, err := responsestest.Stream([]byte(stream))
		if err != nil || !gjson.GetBytes(r, `output.#(type=="function_call")`).Exists() {
			t.Errorf("%v, in %s", err, stream)
		}
		for _, event := range []string{
			"response.reasoning.delta", "response.output_item.added", "response.function_call_arguments.delta",
			"response.function_call_arguments.done", "response.output_item.done",
		} {
			if !strings.Contains(stream, "event: "+event+"\n") {
				t.Errorf("there is no %s in %s", event, stream)
			}
		}
	})
	tests.run(t, "compact-response", func(t *testing.T) { s.compact(t) })
	tests.run(t, "compact-missing-model", func(t *testing.T) {
		status, e := s.d.Post(t, "/v1/responses/compact", `{"input":[`+hello+`]}`)
		if status != http.StatusBadRequest || e.Get("error.param").Str != "model" {
			t.Errorf("%d, %s", status, e.Raw)
		}
	})
}

// compact returns the items of a compaction.
func (s *sockets) compact(t *testing.T) string {
	t.Helper()
	_, r := s.d.Post(t, "/v1/responses/compact", `{"model":"gpt-oss-20b","prompt_cache_key":"k","input":[`+
		`{"role":"user","content":"We launch on Tuesday."},{"role":"assistant","content":"Understood."}]}`)
	if _, err := responsestest.Compaction([]byte(r.Raw)); err != nil {
		t.Errorf("%v, in %s", err, r.Raw)
	}
	return strings.Trim(r.Get("output").Raw, "[]")
}

// openKey is the key of the client that the suite is. It has the names of events that the suite
// knows, beside clients of OpenAI's SDKs at the same gateway.
var openKey = []string{"Authorization", "Bearer open"}

// openReasoning returns the path of a configuration for openKey.
func openReasoning(t *testing.T) string {
	t.Helper()
	sum := sha256.Sum256([]byte("open"))
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "responses: {reasoning_events_for: [{key: " + hex.EncodeToString(sum[:]) + ", events: reasoning}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The part of the suite that is about WebSockets.
func TestOpenResponsesWebSocket(t *testing.T) {
	tests := newSuite(t)
	s := startSockets(t, "--config", openReasoning(t))
	const text = `"Say hello."`
	create := func(members, input string) string {
		return `{"type":"response.create","model":"gpt-oss-20b",` + members + `"input":` + input + `}`
	}
	after := func(id string) string { return `"store":false,"previous_response_id":"` + id + `",` }
	first := func(t *testing.T, c socket) (id string) {
		return c.makes(t, create(`"store":false,`, text)).Get("id").Str
	}

	tests.run(t, "websocket-response", func(t *testing.T) { s.connect(t, openKey...).makes(t, create("", text)) })
	tests.run(t, "websocket-sequential-responses", func(t *testing.T) {
		c := s.connect(t, openKey...)
		if a, b := first(t, c), first(t, c); a == b {
			t.Errorf("both have the id %s", a)
		}
	})

	tests.run(t, "websocket-continuation", func(t *testing.T) {
		c := s.connect(t, openKey...)
		id := c.makes(t, create(`"store":false,`, `"REMEMBER cobalt\nSAY OK."`)).Get("id").Str
		r := c.makes(t, create(after(id), `"RECALL"`))
		if r.Get("previous_response_id").Str != id || !strings.Contains(r.Get("output").Raw, "RECALL:cobalt") {
			t.Errorf("the continuation is %s", r.Raw)
		}
	})
	tests.run(t, "websocket-reconnect-store-false-recovery", func(t *testing.T) {
		id := first(t, s.connect(t, openKey...))
		c := s.connect(t, openKey...)
		c.fails(t, create(after(id), text), "previous_response_not_found")
		first(t, c)
	})
	tests.run(t, "websocket-previous-response-not-found", func(t *testing.T) {
		s.connect(t, openKey...).fails(t, create(after("resp_missing"), text), "previous_response_not_found")
	})

	tests.run(t, "websocket-failed-continuation-evicts-cache", func(t *testing.T) {
		c := s.connect(t, openKey...)
		for _, wrong := range []string{
			`[{"type":"function_call_output","call_id":"call_missing","output":"x"}]`, // refused
			`"SIM status=500"`, `"SIM fault=error@3\nSAY a b c d"`, // fails before its first event, and later
		} {
			id := first(t, c)
			next := c.makes(t, create(after(id), text)).Get("id").Str
			c.fails(t, create(after(id), wrong), "")
			c.fails(t, create(after(id), text), "previous_response_not_found")
			// What has continued it before is not lost.
			c.makes(t, create(after(next), text))
		}

		// One that is stored stays.
		id := c.makes(t, create("", text)).Get("id").Str
		c.fails(t, create(after(id), `"SIM status=500"`), "")
		c.makes(t, create(after(id), text))
	})
	tests.run(t, "websocket-compact-new-chain", func(t *testing.T) {
		c := s.connect(t, openKey...)
		c.makes(t, create(`"store":false,"tools":[],`, `[`+s.compact(t)+`,{"type":"message","role":"user","content":`+text+`}]`))
	})
}

// makes has a response made, checks its events, and returns it.
func (c socket) makes(t *testing.T, create string) gjson.Result {
	t.Helper()
	r, failed := c.events(t, create)
	if failed.Exists() || r.Get("status").Str != "completed" {
		t.Fatalf("%s: %s%s", create, r.Raw, failed.Raw)
	}
	return r
}

// fails has a response made that fails with a code; "": any.
func (c socket) fails(t *testing.T, create, code string) {
	t.Helper()
	r, failed := c.events(t, create)
	if r.Get("status").Str == "failed" {
		failed = r
	}
	if !failed.Exists() || code != "" && failed.Get("error.code").Str != code {
		t.Errorf("%s: %s%s, want code %q", create, r.Raw, failed.Raw, code)
	}
}

// events checks the events of a response as those of a stream, and returns its last one's
// response, or the error in place of it.
func (c socket) events(t *testing.T, create string) (r, failed gjson.Result) {
	t.Helper()
	c.send(t, create)
	var stream strings.Builder
	for r := (gjson.Result{}); !r.Get("usage").IsObject() && r.Get("status").Str != "failed"; {
		ctx, cancel := context.WithTimeout(t.Context(), stack.Patience)
		_, text, err := c.Read(ctx)
		cancel()
		if err != nil {
			t.Fatalf("%s: after %s: %v", create, &stream, err)
		}
		e := gjson.ParseBytes(text)
		if e.Get("type").Str == "error" {
			return gjson.Result{}, e
		}
		r = e.Get("response")
		fmt.Fprintf(&stream, "event: %s\ndata: %s\n\n", e.Get("type").Str, text)
	}

	if strings.Contains(stream.String(), "response.reasoning_text") {
		t.Errorf("%s: events that the suite does not know: %s", create, &stream)
	}
	last, err := responsestest.Stream([]byte(stream.String() + "data: [DONE]\n\n"))
	if err != nil {
		t.Errorf("%v, in %s", err, &stream)
	}
	return gjson.ParseBytes(last), gjson.Result{}
}
