package enginesim

import (
	stdcmp "cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// ownNames are the names of sampling parameters in APIs that deviate from the
// common names; "" means that the API has none.
var ownNames = map[string]map[string]string{
	"sglang":      {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"},
	"sglang-grpc": {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": ""},
	"llamacpp":    {"max_tokens": "n_predict", "min_tokens": "", "repetition_penalty": "repeat_penalty", "n": "", "stop_token_ids": ""},
	"trtllm-grpc": {"logit_bias": "", "skip_special_tokens": ""},
}

// received sends a request in a dialect and returns it as the engine reads it, with
// common names.
func received(t *testing.T, kind string, r *engine.Request) (Record, map[string]any) {
	t.Helper()
	s := New(Options{})
	if got := talk(t, s, kind, "", r); got.Err != nil {
		t.Fatalf("%s: %v", kind, got.Err)
	}
	rec := s.Requests()[0]
	var members map[string]any
	if err := json.Unmarshal(rec.Params, &members); err != nil {
		t.Fatal(err)
	}
	if inner, ok := members["sampling_params"].(map[string]any); ok {
		maps.Copy(members, inner)
	}
	for name, own := range ownNames[kind] {
		members[name] = members[own]
	}
	return rec, members
}

// TestNoEngineDefault: a request without sampling parameters sends each of them to
// every engine, with OpenAI's default. Otherwise the engine would apply the model's
// generation_config or its own defaults.
func TestNoEngineDefault(t *testing.T) {
	want := map[string]any{
		"temperature": 1., "top_p": 1., "min_p": 0., "frequency_penalty": 0., "presence_penalty": 0., "repetition_penalty": 1.,
		"n": 1., "max_tokens": 200., "min_tokens": 0., "stop_token_ids": []any{200002., 200012.}, "skip_special_tokens": false, "stream": true,
	}
	for _, kind := range engine.Kinds() {
		rec, got := received(t, kind, ask("SAY x"))
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if own, renamed := ownNames[kind][name]; renamed && own == "" || name == "skip_special_tokens" && kind == "llamacpp" {
				continue
			}
			if diff := cmp.Diff(want[name], got[name]); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", kind, name, diff)
			}
		}
		if k := got["top_k"]; k != -1. && k != 0. {
			t.Errorf("%s: top_k %v", kind, k)
		}
		if got["seed"] != nil && got["seed"] != -1. {
			t.Errorf("%s: seed %v", kind, got["seed"])
		}
		if rec.RequestID != "5feceb66-1-chatcmpl-1" || !slices.Equal(rec.PromptIDs, ask("SAY x").Prompt) {
			t.Errorf("%s: request %q, %d ids", kind, rec.RequestID, len(rec.PromptIDs))
		}
	}
}

// TestEverythingAsked: every parameter of a request reaches every engine that has
// it.
func TestEverythingAsked(t *testing.T) {
	p := func(x float64) *float64 { return &x }
	topK, seed := 40, int64(7)
	all := func(kind string) *engine.Request {
		return ask("SAY x", func(r *engine.Request) {
			r.Temperature, r.TopP, r.TopK, r.MinP = p(0.5), p(0.75), &topK, p(0.25)
			r.FrequencyPenalty, r.PresencePenalty, r.RepetitionPenalty = p(-0.5), p(1.5), p(1.25)
			r.Seed, r.MaxTokens = &seed, 50
			if kind != "llamacpp" {
				r.N, r.MinTokens, r.StopTokens = 2, 3, []harmony.Token{200007}
			}
			if kind != "trtllm-grpc" {
				r.LogitBias = map[harmony.Token]float64{5: 1.5, 70000: -100}
			}
		})
	}
	want := map[string]any{
		"temperature": .5, "top_p": .75, "top_k": 40., "min_p": .25, "frequency_penalty": -.5, "presence_penalty": 1.5, "repetition_penalty": 1.25,
		"seed": 7., "n": 2., "max_tokens": 50., "min_tokens": 3., "stop_token_ids": []any{200002., 200012., 200007.},
		"logit_bias": map[string]any{"5": 1.5, "70000": -100.},
	}
	for _, kind := range engine.Kinds() {
		_, got := received(t, kind, all(kind))
		if pairs, ok := got["logit_bias"].([]any); ok { // llama.cpp's form
			bias := map[string]any{}
			for _, pair := range pairs {
				id, value := pair.([]any)[0].(float64), pair.([]any)[1]
				bias[strconv.Itoa(int(id))] = value
			}
			got["logit_bias"] = bias
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if own, renamed := ownNames[kind][name]; renamed && own == "" {
				continue
			}
			if diff := cmp.Diff(want[name], got[name]); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", kind, name, diff)
			}
		}
	}
}

// TestLogprobs: all kinds with log probabilities return the same ones in the same
// order, in the requested number, and only numbers that JSON has.
func TestLogprobs(t *testing.T) {
	for _, top := range []int{0, 1, 3, 19, engine.MaxTopLogprobs} {
		r := ask("THINK naïve 🙂\nSAY Hello, naïve 🙂 and more!", func(r *engine.Request) { r.Logprobs, r.TopLogprobs = true, top })
		want := talk(t, New(Options{}), "sglang", "", r)
		checkLogprobs(t, want, top)
		for _, kind := range logprobKinds {
			got := talk(t, New(Options{}), kind, "", r)
			checkLogprobs(t, got, top)
			count := top
			if top == engine.MaxTopLogprobs {
				count-- // the token itself may be in place of the last
			}
			if diff := cmp.Diff(cutTops(want, count), cutTops(got, count), cmpopts.EquateEmpty()); diff != "" || got.Err != nil {
				t.Errorf("%s, %d: %v (-sglang +%s):\n%s", kind, top, got.Err, kind, diff)
			}
		}
	}
}

// cutTops returns the log probabilities of the first choice with at most top
// entries per token.
func cutTops(a answer, top int) []engine.Logprob {
	list := slices.Clone(a.Logprobs[0])
	for i := range list {
		list[i].Top = list[i].Top[:top]
	}
	return list
}

// checkLogprobs checks the order and the number of log probabilities.
func checkLogprobs(t *testing.T, a answer, top int) {
	t.Helper()
	if len(a.Logprobs[0]) != a.Output || a.Output < 11 {
		t.Fatalf("%d of %d tokens", len(a.Logprobs[0]), a.Output)
	}
	for i, p := range a.Logprobs[0] {
		values := []float64{p.Value}
		for _, t := range p.Top {
			values = append(values, t.Logprob)
		}
		if len(p.Top) != top || slices.Max(values) > 0 || slices.Min(values) < -9999 || !slices.IsSortedFunc(p.Top, func(a, b engine.TokenLogprob) int { return stdcmp.Compare(b.Logprob, a.Logprob) }) {
			t.Errorf("place %d: %v", i, p)
		}
	}
	if a.Logprobs[0][10].Value != -9999 {
		t.Errorf("no probability at all is %v", a.Logprobs[0][10].Value)
	}
}

// TestNoLogprobs: without a request for log probabilities a response has none.
// llama.cpp is never asked, because its ids are not all of the model's.
func TestNoLogprobs(t *testing.T) {
	for _, kind := range engine.Kinds() {
		_, got := received(t, kind, ask("SAY x"))
		for _, name := range []string{"logprobs", "top_logprobs_num", "return_tokens_as_token_ids"} {
			if got[name] != nil {
				t.Errorf("%s: %s is %v", kind, name, got[name])
			}
		}
	}
	dialect, _ := engine.ByKind("llamacpp")
	if _, err := dialect.Encode(ask("SAY x", func(r *engine.Request) { r.Logprobs = true })); err == nil || err.Status != 400 || err.Param != "logprobs" {
		t.Errorf("llamacpp: %v", err)
	}
}

// TestErrorsBeforeTheReply: errors of all kinds of engines are decoded to the same
// error.
func TestErrorsBeforeTheReply(t *testing.T) {
	for directive, want := range map[string]int{"status=400": 400, "status=401": 502, "status=429": 429, "status=500": 502, "status=503": 503, "status=504": 504} {
		for _, kind := range engine.Kinds() {
			got := talk(t, New(Options{}), kind, directive, ask("SAY x"))
			if got.Err == nil || got.Err.Status != want {
				t.Errorf("%s, %s: %+v", kind, directive, got.Err)
			}
		}
	}
}

// TestCachedTokensOfEveryKind: a repeated prompt is cached, and the response
// reports it.
func TestCachedTokensOfEveryKind(t *testing.T) {
	for _, kind := range engine.Kinds() {
		s := New(Options{BlockSize: 8})
		r := ask("SAY " + strings.Repeat("x ", 50))
		first, again := talk(t, s, kind, "", r), talk(t, s, kind, "", r)
		if first.Usage.CachedTokens != 0 || again.Usage.CachedTokens != (len(r.Prompt)-1)/8*8 {
			t.Errorf("%s: cached %d, then %d of %d", kind, first.Usage.CachedTokens, again.Usage.CachedTokens, len(r.Prompt))
		}
	}
}
