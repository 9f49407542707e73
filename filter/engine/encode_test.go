package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func ptr[T any](v T) *T { return &v }

// ofKind returns the entry of a kind in a test's table. Each kind that the test is about needs one.
func ofKind[V any](t testing.TB, table map[string]V, kind string) V {
	t.Helper()
	entry, ok := table[kind]
	if !ok {
		t.Fatalf("%s has no entry in the table here: add it", kind)
	}
	return entry
}

func TestEncode(t *testing.T) {
	least := &Request{ID: CallID{Unique: "5feceb66", Number: 1, Request: "chatcmpl-1"}, Model: "gpt-oss-20b", Prompt: []harmony.Token{200006, 1428}, N: 1, MaxTokens: 100}
	all := &Request{
		ID: CallID{Unique: "5feceb66", Number: 20, Request: "chatcmpl-2"}, Model: `a "model"`, Prompt: []harmony.Token{1}, N: 2, MaxTokens: 5, MinTokens: 3,
		Temperature: ptr(0.0), TopP: ptr(0.9), TopK: ptr(40), MinP: ptr(0.05),
		FrequencyPenalty: ptr(-0.5), PresencePenalty: ptr(1e-7), RepetitionPenalty: ptr(1.1),
		Seed: ptr(int64(-9)), LogitBias: map[harmony.Token]float64{7: -100, 5: 1.5},
		StopTokens: []harmony.Token{200007, 200002}, CacheSalt: "tenant", Priority: ptr(-1), Whole: true,
	}
	for _, c := range []struct {
		name, kind string
		r          *Request
		want       string
	}{
		{"least", "sglang", least, `{"rid":"5feceb66-1-chatcmpl-1","input_ids":[200006,1428],"sampling_params":{"temperature":1,"top_p":1,"top_k":-1,"min_p":0,` +
			`"frequency_penalty":0,"presence_penalty":0,"repetition_penalty":1,"n":1,"stop_token_ids":[200002,200012],"skip_special_tokens":false,` +
			`"max_new_tokens":100,"min_new_tokens":0,"no_stop_trim":true},"stream":true}`},
		{"all", "sglang", all, `{"rid":"5feceb66-20-chatcmpl-2","input_ids":[1],"sampling_params":{"temperature":0,"top_p":0.9,"top_k":40,"min_p":0.05,` +
			`"frequency_penalty":-0.5,"presence_penalty":1e-07,"repetition_penalty":1.1,"n":2,"stop_token_ids":[200002,200012,200007],"skip_special_tokens":false,` +
			`"logit_bias":{"5":1.5,"7":-100},"stream_interval":64,"max_new_tokens":5,"min_new_tokens":3,"sampling_seed":-9,"no_stop_trim":true},` +
			`"stream":true,"cache_salt":"tenant","priority":-1}`},
		{"least", "vllm", least, `{"model":"gpt-oss-20b","prompt":[200006,1428],"temperature":1,"top_p":1,"top_k":-1,"min_p":0,` +
			`"frequency_penalty":0,"presence_penalty":0,"repetition_penalty":1,"n":1,"stop_token_ids":[200002,200012],"skip_special_tokens":false,` +
			`"max_tokens":100,"min_tokens":0,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true}`},
		{"all", "vllm", all, `{"model":"a \"model\"","prompt":[1],"temperature":0,"top_p":0.9,"top_k":40,"min_p":0.05,` +
			`"frequency_penalty":-0.5,"presence_penalty":1e-07,"repetition_penalty":1.1,"n":2,"stop_token_ids":[200002,200012,200007],"skip_special_tokens":false,` +
			`"logit_bias":{"5":1.5,"7":-100},"stream_interval":64,"max_tokens":5,"min_tokens":3,"seed":-9,"stream":true,` +
			`"stream_options":{"include_usage":true},"return_token_ids":true,"cache_salt":"tenant","priority":-1}`},
	} {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			dialect, _ := ByKind(c.kind)
			got, err := dialect.Encode(c.r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got.Body)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !json.Valid(got.Body) {
				t.Error("not JSON")
			}
		})
	}
}

// TestEncodeConstraint checks that each dialect sends the constraint in its
// field and leaves out the request's stop tokens.
func TestEncodeConstraint(t *testing.T) {
	const tag = `{"type":"structural_tag","format":{"type":"const_string","value":"a\"<|end|>"}}`
	quoted, err := json.Marshal(tag)
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Model: "m", Prompt: []harmony.Token{1}, N: 1, MaxTokens: 5, StopTokens: []harmony.Token{harmony.TokenEnd}, Constraint: constraint.Text(`a"<|end|>`)}
	members := map[string]string{
		"sglang":        "sampling_params.structural_tag",
		"vllm":          "structured_outputs.structural_tag",
		"vllm-generate": "sampling_params.structured_outputs.structural_tag",
	}
	for _, kind := range Kinds() {
		dialect, _ := ByKind(kind)
		got, failed := dialect.Encode(r)
		switch traits := dialect.Traits(); {
		case !traits.Constrains:
			if failed == nil || failed.Status != 400 {
				t.Errorf("%s: %v, want a 400", kind, failed)
			}
			continue
		case failed != nil:
			t.Fatal(failed)
		case traits.GRPC:
			if !bytes.Contains(got.Body, []byte(tag)) {
				t.Errorf("%s: no structural tag", kind)
			}
			continue
		}
		if found := gjson.GetBytes(got.Body, ofKind(t, members, kind)); found.Str != tag {
			t.Errorf("%s: %s, want %s", kind, found, quoted)
		}
		if !bytes.Contains(got.Body, []byte(`"stop_token_ids":[200002,200012]`)) {
			t.Errorf("%s: the user's stop tokens are sent: %s", kind, got.Body)
		}
	}
	r.MinTokens = 1
	for _, kind := range Kinds() {
		dialect, _ := ByKind(kind)
		if _, err := dialect.Encode(r); err == nil || err.Param != "min_tokens" {
			t.Errorf("%s: %v, want an error about min_tokens", kind, err)
		}
	}
}

func TestEncodeHeaders(t *testing.T) {
	r := &Request{ID: CallID{Unique: "5feceb66", Number: 1, Request: "chatcmpl-1"}, Model: "m", Prompt: []harmony.Token{1}, N: 1, MaxTokens: 1}
	common := []Header{{"content-type", "application/json"}, {"accept", "text/event-stream"}}
	for kind, want := range map[string]HTTPRequest{
		"sglang": {Path: "/generate", Header: common},
		"vllm":   {Path: "/v1/completions", Header: append(common, Header{"x-request-id", "5feceb66-1-chatcmpl-1"})},
	} {
		dialect, _ := ByKind(kind)
		got, err := dialect.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body = nil
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	good := Request{Model: "m", Prompt: []harmony.Token{1}, N: 1, MaxTokens: 1}
	for _, c := range []struct {
		param  string
		change func(*Request)
	}{
		{"", func(r *Request) { r.Prompt = nil }},
		{"max_tokens", func(r *Request) { r.MaxTokens = 0 }},
		{"min_tokens", func(r *Request) { r.MinTokens = 2 }},
		{"temperature", func(r *Request) { r.Temperature = ptr(math.NaN()) }},
		{"top_p", func(r *Request) { r.TopP = ptr(math.Inf(1)) }},
		{"logit_bias", func(r *Request) { r.LogitBias = map[harmony.Token]float64{1: math.Inf(-1)} }},
	} {
		for _, kind := range Kinds() {
			r := good
			c.change(&r)
			dialect, _ := ByKind(kind)
			if _, err := dialect.Encode(&r); err == nil || err.Status != 400 || err.Param != c.param {
				t.Errorf("%s %s: %v", kind, c.param, err)
			}
		}
	}
}

func TestByKind(t *testing.T) {
	for _, kind := range Kinds() {
		if d, ok := ByKind(kind); !ok || d.Kind() != kind {
			t.Errorf("ByKind(%q) = %v, %v", kind, d, ok)
		}
	}
	if _, ok := ByKind("none"); ok {
		t.Error("ByKind(\"none\") found a dialect")
	}
}

func BenchmarkEncode(b *testing.B) {
	r := &Request{ID: CallID{Unique: "5feceb66", Number: 1, Request: "chatcmpl-1"}, Model: "m", Prompt: make([]harmony.Token, 10000), N: 1, MaxTokens: 1}
	for i := range r.Prompt {
		r.Prompt[i] = harmony.Token(i * 20)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (vllm{}).Encode(r); err != nil {
			b.Fatal(err)
		}
	}
}
