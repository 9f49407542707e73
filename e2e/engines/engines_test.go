package engines

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// TestEveryEngine runs the same conversation with each kind of engine, with and
// without the loopback listener. gRPC engines are reached over HTTP/2.
func TestEveryEngine(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "loopback", true: "direct"}[direct], func(t *testing.T) {
			d := stack.Start(t, stack.Options{Config: stack.EveryEngine, Direct: direct})
			for _, kind := range engine.Kinds() {
				t.Run(kind, func(t *testing.T) {
					t.Parallel() // faults in streams take time
					t.Run("reply", func(t *testing.T) { engineReplies(t, d, kind) })
					t.Run("logprobs", func(t *testing.T) { checkLogprobs(t, d, kind) })
					t.Run("call", func(t *testing.T) { engineCalls(t, d, kind) })
					t.Run("error", func(t *testing.T) { engineFails(t, d, kind) })
					t.Run("disconnect", func(t *testing.T) { engineIsLeft(t, d, kind) })
				})
			}
		})
	}
}

func engineReplies(t *testing.T, d *stack.Dataplane, kind string) {
	t.Helper()
	const text = "THINK hm, naïve 🙂\nSAY Hello, naïve 🙂!"
	want := []stack.ChoiceResult{{Reasoning: "hm, naïve 🙂", Content: "Hello, naïve 🙂!", Finish: "stop"}}
	c := d.Openai()

	for name, got := range map[string]stack.ChatReply{"whole": stack.NonStreamed(t, c, stack.UserMessage(stack.ModelOf(kind), text)), "streamed": stack.Streamed(t, c, stack.UserMessage(stack.ModelOf(kind), text))} {
		if diff := cmp.Diff(want, got.Choices); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}

		if got.Usage.PromptTokens == 0 || got.Usage.CompletionTokens == 0 {
			t.Errorf("%s: usage %+v", name, got.Usage)
		}
	}

	cut := stack.UserMessage(stack.ModelOf(kind), "WORDS 100")
	cut.MaxCompletionTokens = openai.Int(20)
	if got := stack.NonStreamed(t, c, cut); got.Choices[0].Finish != "length" || got.Usage.CompletionTokens != 20 {
		t.Errorf("cut: %+v", got)
	}

	stopped := stack.UserMessage(stack.ModelOf(kind), "SAY one two three")
	stopped.Stop = openai.ChatCompletionNewParamsStopUnion{OfString: openai.String(" two")}
	for name, got := range map[string]stack.ChatReply{"whole": stack.NonStreamed(t, c, stopped), "streamed": stack.Streamed(t, c, stopped)} {
		if got.Choices[0].Content != "one" || got.Choices[0].Finish != "stop" {
			t.Errorf("stopped, %s: %+v", name, got)
		}
	}

	if !engine.IsGRPC(kind) {
		return
	}

	const words = 100_000 // in one message
	long := stack.NonStreamed(t, c, stack.UserMessage(stack.ModelOf(kind), strings.Repeat("word ", words)+"\nSAY done"))
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
func checkLogprobs(t *testing.T, d *stack.Dataplane, kind string) {
	t.Helper()
	const text = "Hello, naïve 🪬!"
	p := stack.UserMessage(stack.ModelOf(kind), "THINK hm\nSAY "+text)
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
	c := d.Openai()

	if kind == "llamacpp" {
		_, err := c.Chat.Completions.New(t.Context(), p)
		stack.WantErrorWith(t, err, http.StatusBadRequest, "logprobs are not supported")
		_, err = c.Responses.New(t.Context(), includeLogprobs(stack.ModelOf(kind), text))
		stack.WantErrorWith(t, err, http.StatusBadRequest, "logprobs are not supported")
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

func engineCalls(t *testing.T, d *stack.Dataplane, kind string) {
	t.Helper()
	p := stack.UserMessage(stack.ModelOf(kind), "COMMENTARY I look.\nCALL get_weather {\"city\":\"Zürich 🏔\"}")
	p.Tools = []openai.ChatCompletionToolUnionParam{stack.WeatherTool}
	c := d.Openai()
	for name, got := range map[string]stack.ChatReply{"whole": stack.NonStreamed(t, c, p), "streamed": stack.Streamed(t, c, p)} {
		if got.Choices[0].Finish != "tool_calls" || len(got.Choices[0].Calls) != 1 || got.Choices[0].Calls[0] != (stack.Call{Name: "get_weather", Arguments: `{"city":"Zürich 🏔"}`}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func engineFails(t *testing.T, d *stack.Dataplane, kind string) {
	t.Helper()
	for _, tt := range []struct{ directive, status string }{
		{"status=429", "429"}, {"status=503", "503"}, {"status=500", "502"}, {"status=400", "400"},
	} {
		for _, more := range []string{"", `,"stream":true`} {
			resp, text := d.Chat(t, stack.ModelOf(kind), "SIM "+tt.directive, more)
			if stack.ReadError(t, text); !strings.HasPrefix(resp.Status, tt.status) {
				t.Errorf("%s%s: %s: %s", tt.directive, more, resp.Status, text)
			}
		}
	}

	// Envoy retries, even if a gRPC call was rejected.
	id := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
	d.Chat(t, stack.ModelOf(kind), "SIM status=503", "", "x-request-id", id)
	if got := d.EngineRequests(t, id); len(got) != 3 {
		t.Errorf("the engine got a request %d times that it answers with 503", len(got))
	}

	if resp, text := d.Chat(t, stack.ModelOf(kind), "x", `,"temperature":1.5,"max_completion_tokens":200000`); resp.StatusCode >= http.StatusInternalServerError {
		t.Errorf("too long: %s: %s", resp.Status, text)
	}

	faults := []string{"error@15", "end@15", "garbage@15"}
	if !d.Direct { // otherwise Envoy resets the client's stream
		faults = append(faults, "cut@15")
	}

	for _, fault := range faults {
		resp, text := d.Chat(t, stack.ModelOf(kind), "NOTHINK\nWORDS 60\nSIM fault="+fault, "")
		if stack.ReadError(t, text); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s: %s", fault, resp.Status, text)
		}

		resp, text = d.Chat(t, stack.ModelOf(kind), "NOTHINK\nWORDS 60\nSIM delay=15ms fault="+fault, `,"stream":true`)
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
		d := stack.Start(t, stack.Options{Direct: direct, Config: func(c *config.Config) {
			stack.EveryEngine(c)
			for i := range c.Engines {
				c.Engines[i].URLs = []string{"http://127.0.0.1:1"}
			}
		}})
		for _, kind := range engine.Kinds() {
			for _, more := range []string{"", `,"stream":true`} {
				resp, text := d.Chat(t, stack.ModelOf(kind), "x", more)
				if stack.ReadError(t, text); resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s%s, direct %t: %s: %s", kind, more, direct, resp.Status, text)
				}
			}
		}
	}
}

func engineIsLeft(t *testing.T, d *stack.Dataplane, kind string) {
	t.Helper()
	id := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 1000000 5"}]}`, stack.ModelOf(kind))
	resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), "x-request-id", id)
	if _, err := io.ReadFull(resp.Body, make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	d.AwaitEngine(t, id, stack.StateCancelled)
}
