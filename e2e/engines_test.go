package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// modelOf returns the model that an engine of a kind serves.
func modelOf(kind string) string { return "gpt-oss-" + kind }

// everyEngine configures an engine of each kind, each with its own model.
func everyEngine(c *config.Config) {
	url := c.Engines[0].URLs[0]
	c.Engines, c.Models = nil, nil
	for _, kind := range engine.Kinds() {
		c.Engines = append(c.Engines, config.Engine{Kind: kind, URLs: []string{url}})
		c.Models = append(c.Models, config.Model{Match: "=" + modelOf(kind), Engine: kind, UpstreamModel: "gpt-oss-20b"})
	}
}

// TestEveryEngine runs the same conversation with each kind of engine, with and
// without the loopback listener. gRPC engines are reached over HTTP/2.
func TestEveryEngine(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "loopback", true: "direct"}[direct], func(t *testing.T) {
			d := start(t, options{config: everyEngine, direct: direct})
			for _, kind := range engine.Kinds() {
				t.Run(kind, func(t *testing.T) {
					t.Parallel() // faults in streams take time
					t.Run("reply", func(t *testing.T) { d.engineReplies(t, kind) })
					t.Run("logprobs", func(t *testing.T) { d.checkLogprobs(t, kind) })
					t.Run("call", func(t *testing.T) { d.engineCalls(t, kind) })
					t.Run("error", func(t *testing.T) { d.engineFails(t, kind) })
					t.Run("disconnect", func(t *testing.T) { d.engineIsLeft(t, kind) })
				})
			}
		})
	}
}

func (d *dataplane) engineReplies(t *testing.T, kind string) {
	t.Helper()
	const text = "THINK hm, naïve 🙂\nSAY Hello, naïve 🙂!"
	want := []choiceResult{{Reasoning: "hm, naïve 🙂", Content: "Hello, naïve 🙂!", Finish: "stop"}}
	c := d.openai()
	for name, got := range map[string]reply{"whole": nonStreamed(t, c, user(modelOf(kind), text)), "streamed": streamed(t, c, user(modelOf(kind), text))} {
		if diff := cmp.Diff(want, got.Choices); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.Usage.PromptTokens == 0 || got.Usage.CompletionTokens == 0 {
			t.Errorf("%s: usage %+v", name, got.Usage)
		}
	}
	cut := user(modelOf(kind), "WORDS 100")
	cut.MaxCompletionTokens = openai.Int(20)
	if got := nonStreamed(t, c, cut); got.Choices[0].Finish != "length" || got.Usage.CompletionTokens != 20 {
		t.Errorf("cut: %+v", got)
	}
	stopped := user(modelOf(kind), "SAY one two three")
	stopped.Stop = openai.ChatCompletionNewParamsStopUnion{OfString: openai.String(" two")}
	for name, got := range map[string]reply{"whole": nonStreamed(t, c, stopped), "streamed": streamed(t, c, stopped)} {
		if got.Choices[0].Content != "one" || got.Choices[0].Finish != "stop" {
			t.Errorf("stopped, %s: %+v", name, got)
		}
	}
	if !engine.IsGRPC(kind) {
		return
	}
	const words = 100_000 // in one message
	long := nonStreamed(t, c, user(modelOf(kind), strings.Repeat("word ", words)+"\nSAY done"))
	if long.Choices[0].Content != "done" || long.Usage.PromptTokens < words {
		t.Errorf("a long prompt: %+v", long)
	}
}

// includeLogprobs asks for a response with log probabilities.
func includeLogprobs(model, text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: model, Include: []responses.ResponseIncludable{responses.ResponseIncludableMessageOutputTextLogprobs},
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("THINK hm\nSAY " + text)},
	}
}

// checkLogprobs checks log probabilities, which belong to the tokens of the answer
// only and join to its text. llama.cpp has none that can be returned.
func (d *dataplane) checkLogprobs(t *testing.T, kind string) {
	t.Helper()
	const text = "Hello, naïve 🪬!"
	p := user(modelOf(kind), "THINK hm\nSAY "+text)
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
	c := d.openai()
	if kind == "llamacpp" {
		_, err := c.Chat.Completions.New(t.Context(), p)
		wantErrorWith(t, err, http.StatusBadRequest, "logprobs are not supported")
		_, err = c.Responses.New(t.Context(), includeLogprobs(modelOf(kind), text))
		wantErrorWith(t, err, http.StatusBadRequest, "logprobs are not supported")
		return
	}
	whole, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	defer func() { _ = stream.Close() }()
	var entries []openai.ChatCompletionTokenLogprob
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			entries = append(entries, choice.Logprobs.Content...)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	for how, entries := range map[string][]openai.ChatCompletionTokenLogprob{"whole": whole.Choices[0].Logprobs.Content, "streamed": entries} {
		var joined []byte
		for _, e := range entries {
			for _, b := range e.Bytes {
				joined = append(joined, byte(b))
			}
			if len(e.TopLogprobs) == 0 || len(e.TopLogprobs) > 2 || e.Logprob > 0 || e.TopLogprobs[0].Logprob < e.Logprob {
				t.Errorf("%s: %s", how, e.RawJSON())
			}
		}
		if string(joined) != text {
			t.Errorf("%s: the entries join to %q", how, joined)
		}
	}
}

func (d *dataplane) engineCalls(t *testing.T, kind string) {
	t.Helper()
	p := user(modelOf(kind), "COMMENTARY I look.\nCALL get_weather {\"city\":\"Zürich 🏔\"}")
	p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool}
	c := d.openai()
	for name, got := range map[string]reply{"whole": nonStreamed(t, c, p), "streamed": streamed(t, c, p)} {
		if got.Choices[0].Finish != "tool_calls" || len(got.Choices[0].Calls) != 1 || got.Choices[0].Calls[0] != (call{"get_weather", `{"city":"Zürich 🏔"}`}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func (d *dataplane) engineFails(t *testing.T, kind string) {
	t.Helper()
	for _, tt := range []struct{ directive, status string }{
		{"status=429", "429"}, {"status=503", "503"}, {"status=500", "502"}, {"status=400", "400"},
	} {
		for _, more := range []string{"", `,"stream":true`} {
			resp, text := d.chat(t, modelOf(kind), "SIM "+tt.directive, more)
			if readError(t, text); !strings.HasPrefix(resp.Status, tt.status) {
				t.Errorf("%s%s: %s: %s", tt.directive, more, resp.Status, text)
			}
		}
	}
	// Envoy retries, even if a gRPC call was rejected.
	id := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
	d.chat(t, modelOf(kind), "SIM status=503", "", "x-request-id", id)
	if got := d.engineRequests(t, id); len(got) != 3 {
		t.Errorf("the engine got a request %d times that it answers with 503", len(got))
	}
	if resp, text := d.chat(t, modelOf(kind), "x", `,"temperature":1.5,"max_completion_tokens":200000`); resp.StatusCode >= http.StatusInternalServerError {
		t.Errorf("too long: %s: %s", resp.Status, text)
	}
	faults := []string{"error@15", "end@15", "garbage@15"}
	if !d.direct { // otherwise Envoy resets the client's stream
		faults = append(faults, "cut@15")
	}
	for _, fault := range faults {
		resp, text := d.chat(t, modelOf(kind), "NOTHINK\nWORDS 60\nSIM fault="+fault, "")
		if readError(t, text); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s: %s", fault, resp.Status, text)
		}
		resp, text = d.chat(t, modelOf(kind), "NOTHINK\nWORDS 60\nSIM delay=15ms fault="+fault, `,"stream":true`)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"w`) || !strings.Contains(text, `data: {"error"`) || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s, streamed: %s: %s", fault, resp.Status, text)
		}
		for name := range resp.Trailer {
			t.Errorf("%s: the client gets the trailer %s", fault, name)
		}
	}
}

// If an engine cannot be reached, the client gets a 503. For a gRPC call, Envoy's
// local reply has the form of gRPC.
func TestEngineIsDown(t *testing.T) {
	for _, direct := range []bool{false, true} {
		d := start(t, options{direct: direct, config: func(c *config.Config) {
			everyEngine(c)
			for i := range c.Engines {
				c.Engines[i].URLs = []string{"http://127.0.0.1:1"}
			}
		}})
		for _, kind := range engine.Kinds() {
			for _, more := range []string{"", `,"stream":true`} {
				resp, text := d.chat(t, modelOf(kind), "x", more)
				if readError(t, text); resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s%s, direct %t: %s: %s", kind, more, direct, resp.Status, text)
				}
			}
		}
	}
}

func (d *dataplane) engineIsLeft(t *testing.T, kind string) {
	t.Helper()
	id := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 1000000 5"}]}`, modelOf(kind))
	resp := d.do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), "x-request-id", id)
	if _, err := io.ReadFull(resp.Body, make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	d.awaitEngine(t, id, stateCancelled)
}
