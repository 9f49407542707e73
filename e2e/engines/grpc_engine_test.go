package engines

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// grpcReply is the result of a case in the Python client.
type grpcReply struct {
	Request map[string]any              `json:"request"`
	Model   map[string]any              `json:"model"` // the reply to GetModelInfo
	Replies []map[string]map[string]any `json:"replies"`
	Code    string                      `json:"code"`
	Details string                      `json:"details"`
}

// TestGRPCMessages decodes the filter's gRPC messages with the engines' own
// protobuf classes, and sends requests of these classes to the simulated engine. So
// the field numbers of both are the engines' own.
func TestGRPCMessages(t *testing.T) {
	if _, err := os.Stat(stack.Python); err != nil {
		t.Fatal("there are no Python clients: run make venv")
	}

	number := func(x float64) *float64 { return &x }
	topK, seed := 40, int64(7)
	prompt := func(user string) []harmony.Token {
		return harmony.AppendEncodeSpecial(nil, "<|start|>user<|message|>"+user+"<|end|><|start|>assistant")
	}

	requests := []*engine.Request{
		{ID: engine.CallID{Number: 1, Request: "chatcmpl"}, Prompt: prompt("THINK naïve 🙂\nSAY Hello, naïve 🙂!"), N: 1, MaxTokens: 200},
		{
			ID: engine.CallID{Number: 2, Request: "chatcmpl"}, Prompt: prompt("NOTHINK\nSAY two"), N: 2, MaxTokens: 60, MinTokens: 3,
			Temperature: number(0.5), TopP: number(0.75), TopK: &topK, MinP: number(0.25),
			FrequencyPenalty: number(-0.5), PresencePenalty: number(1.5), RepetitionPenalty: number(1.25),
			Seed: &seed, StopTokens: []harmony.Token{200007},
		},
		{ID: engine.CallID{Number: 3, Request: "chatcmpl"}, Prompt: prompt("WORDS 50"), N: 1, MaxTokens: 6, CacheSalt: "tenant"},
		{ID: engine.CallID{Number: 4, Request: "chatcmpl"}, Prompt: prompt("x"), N: 1, MaxTokens: 6, Temperature: number(-1)},
		{ID: engine.CallID{Number: 5, Request: "chatcmpl"}, Prompt: prompt("SIM status=503\nx"), N: 1, MaxTokens: 6},
		{ID: engine.CallID{Number: 6, Request: "chatcmpl"}, Prompt: prompt("SIM fault=error@3\nx"), N: 1, MaxTokens: 60},
		{ID: engine.CallID{Number: 7, Request: "chatcmpl"}, Prompt: prompt("x"), N: 1, MaxTokens: 60, Constraint: constraint.Text("x")},
		{ID: engine.CallID{Number: 8, Request: "chatcmpl"}, Prompt: prompt("NOTHINK\nSAY x"), N: 1, MaxTokens: 60, Logprobs: true, TopLogprobs: 2},
	}

	var kinds []string
	var cases bytes.Buffer
	lines := json.NewEncoder(&cases)
	for _, kind := range engine.Kinds() {
		if !engine.IsGRPC(kind) {
			continue
		}

		kinds = append(kinds, kind)
		dialect, _ := engine.ByKind(kind)
		for _, r := range withPrefill(t, dialect, requests) {
			wire, failed := dialect.Encode(r)
			if failed != nil {
				t.Fatal(failed)
			}
			if err := lines.Encode(map[string]any{"kind": kind, "request": wire.Body[5:]}); err != nil {
				t.Fatal(err)
			}
		}
	}

	log := &stack.LogFile{}
	cmd := exec.CommandContext(t.Context(), stack.Python, "python/grpc_engine.py")
	cmd.Env = append(os.Environ(), "ENGINE="+strings.TrimPrefix(stack.StartSim(t, log), "http://"))
	cmd.Stdin = &cases
	var stderr bytes.Buffer
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}

	answers := json.NewDecoder(bytes.NewReader(out))
	for _, kind := range kinds {
		dialect, _ := engine.ByKind(kind)
		got := make([]grpcReply, len(withPrefill(t, dialect, requests)))
		for i := range got {
			if err := answers.Decode(&got[i]); err != nil {
				t.Fatal(err)
			}
		}

		t.Run(kind, func(t *testing.T) {
			checkGRPC(t, kind, requests, got[:len(requests)])
			checkPrefill(t, kind, got[len(requests):])
		})
	}
}

// withPrefill adds a prefill request if the engine supports disaggregation.
func withPrefill(t *testing.T, dialect engine.Dialect, requests []*engine.Request) []*engine.Request {
	t.Helper()
	d, ok := dialect.(engine.Disaggregator)
	if !ok {
		return requests
	}
	prefill, err := d.PrefillRequest(requests[0], &engine.Bootstrap{Host: "prefill-0", Port: 8998, Room: 1<<31 - 1})
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Clip(requests), prefill)
}

// checkPrefill checks a prefill request and its reply.
func checkPrefill(t *testing.T, kind string, got []grpcReply) {
	t.Helper()
	for _, r := range got {
		switch kind {
		case "sglang-grpc": // without a role the simulated engine does the whole request
			if !cmp.Equal(r.Request["disaggregated_params"], any(map[string]any{"bootstrap_host": "prefill-0", "bootstrap_port": 8998., "bootstrap_room": float64(1<<31 - 1)})) || r.Code != "INVALID_ARGUMENT" {
				t.Errorf("prefill: %v, code %s", r.Request, r.Code)
			}
		case "vllm-grpc":
			params, _ := r.Request["kv_transfer_params_json"].(string)
			if !gjson.Get(params, "do_remote_decode").Bool() || r.Request["stream"] == true || len(r.Replies) != 1 {
				t.Fatalf("prefill: %v, replies %v", r.Request, r.Replies)
			}
			transfer, _ := r.Replies[0]["complete"]["kv_transfer_params_json"].(string)
			if !gjson.Get(transfer, "do_remote_prefill").Bool() || r.Code != "OK" {
				t.Errorf("it returns %v, code %s", r.Replies, r.Code)
			}
		}
	}
}

// Names of the services for the common fields.
var grpcNames = map[string]map[string]string{
	"vllm-grpc": {"params": "sampling_params", "ids": "input_ids", "max_tokens": "max_tokens", "min_tokens": "min_tokens", "seed": "seed"},
	"sglang-grpc": {
		"params": "sampling_params", "ids": "input_ids", "max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens",
	},
	"trtllm-grpc": {"params": "sampling_config", "ids": "input_token_ids", "min_tokens": "min_tokens", "seed": "seed"},
}

// Model information that the services return for the simulated engine.
var grpcModels = map[string]map[string]any{
	"vllm-grpc":   {"served_model_name": "openai/gpt-oss-20b", "max_context_length": 131072.},
	"sglang-grpc": {"served_model_name": "openai/gpt-oss-20b", "max_req_input_len": 131066.},
	"trtllm-grpc": {"model_id": "openai/gpt-oss-20b", "max_seq_len": 131072.},
}

func checkGRPC(t *testing.T, kind string, requests []*engine.Request, got []grpcReply) {
	t.Helper()
	names := grpcNames[kind]
	params := func(r grpcReply) map[string]any {
		p, _ := r.Request[names["params"]].(map[string]any)
		if kind == "trtllm-grpc" {
			p["stop_token_ids"], p["n"] = r.Request["stop_token_ids"], p["num_return_sequences"]
		}
		return p
	}

	for i, r := range got {
		ids, _ := r.Request["tokenized"].(map[string]any)
		want := make([]any, len(requests[i].Prompt))
		for j, id := range requests[i].Prompt {
			want[j] = float64(id)
		}

		if r.Request["request_id"] != requests[i].ID.String() || !cmp.Equal(ids[names["ids"]], any(want)) || r.Request["stream"] != true && r.Request["streaming"] != true {
			t.Errorf("request %d: %v", i, r.Request)
		}
	}

	least, all := params(got[0]), params(got[1])
	for name, want := range map[string][2]any{
		"temperature": {1., .5}, "top_p": {1., .75}, "min_p": {0., .25}, "frequency_penalty": {0., -.5}, "presence_penalty": {0., 1.5},
		"repetition_penalty": {1., 1.25}, "n": {1., 2.}, "stop_token_ids": {[]any{200002., 200012.}, []any{200002., 200012., 200007.}},
		names["min_tokens"]: {0., 3.},
	} {
		if !cmp.Equal(least[name], want[0]) || !cmp.Equal(all[name], want[1]) {
			t.Errorf("%s is %v and %v, want %v", name, least[name], all[name], want)
		}
	}

	if all["top_k"] != 40. || least["top_k"] != 0. && least["top_k"] != -1. {
		t.Errorf("top_k %v and %v", least["top_k"], all["top_k"])
	}

	if limit := names["max_tokens"]; limit != "" && all[limit] != 60. || limit == "" && got[1].Request["max_tokens"] != 60. {
		t.Errorf("the limit: %v", got[1].Request)
	}
	if seed := names["seed"]; seed != "" && all[seed] != 7. && all[seed] != "7" { // 64-bit numbers are strings in JSON
		t.Errorf("seed %v", all[seed])
	}

	if tagged, err := json.Marshal(got[6].Request); err != nil || !strings.Contains(string(tagged), `"structural_tag\"`) && !strings.Contains(string(tagged), `"structural_tag":"`) {
		t.Errorf("no structural tag: %s, %v", tagged, err)
	}

	for field, want := range grpcModels[kind] {
		if value := got[0].Model[field]; value != want {
			t.Errorf("the model's %s is %v, want %v", field, value, want)
		}
	}

	checkGRPCLogprobs(t, kind, got[7])
	type end struct{ code, finish string }
	refused := end{"INVALID_ARGUMENT", ""}
	if kind == "sglang-grpc" {
		refused = end{"OK", "length"} // it takes any temperature
	}
	for i, want := range []end{{"OK", "stop"}, {"OK", "stop"}, {"OK", "length"}, refused, {"UNAVAILABLE", ""}, {"INTERNAL", ""}} {
		finish := ""
		var ids []any
		for _, reply := range got[i].Replies {
			if c := reply["chunk"]; c != nil && (c["index"] == 0. || c["sequence_index"] == 0.) {
				more, _ := c["token_ids"].([]any)
				ids = append(ids, more...)
			}
			if c := reply["complete"]; c != nil {
				finish, _ = c["finish_reason"].(string)
			}
		}

		if got[i].Code != want.code || finish != want.finish {
			t.Errorf("call %d: code %s %q, finish %q", i, got[i].Code, got[i].Details, finish)
		}

		if i == 0 && (len(ids) == 0 || !slices.Equal(ids[len(ids)-1:], []any{200002.})) {
			t.Errorf("ids %v do not end with the stop token", ids)
		}
	}
}

// checkGRPCLogprobs checks a request for log probabilities and its replies: each
// chunk has as many as it has tokens.
func checkGRPCLogprobs(t *testing.T, kind string, got grpcReply) {
	t.Helper()
	params, _ := got.Request[grpcNames[kind]["params"]].(map[string]any)
	output, _ := got.Request["output_config"].(map[string]any)
	asked := map[string]any{"vllm-grpc": params["logprobs"], "sglang-grpc": got.Request["top_logprobs_num"], "trtllm-grpc": output["logprobs"]}[kind]
	if want := map[string]any{"vllm-grpc": 3., "sglang-grpc": 2., "trtllm-grpc": 2.}[kind]; asked != want || kind == "sglang-grpc" && got.Request["return_logprob"] != true {
		t.Errorf("asked for %v, want %v", asked, want)
	}

	chunks := 0
	for _, reply := range got.Replies {
		c := reply["chunk"]
		if c == nil {
			continue
		}

		chunks++
		ids, _ := c["token_ids"].([]any)
		logprobs, _ := c["logprobs"].([]any)
		if columns, ok := c["output_logprobs"].(map[string]any); ok {
			logprobs, _ = columns["token_logprobs"].([]any)
			if tops, _ := columns["top_logprobs"].([]any); len(tops) != len(logprobs) || !cmp.Equal(columns["token_ids"], any(ids)) {
				t.Errorf("log probabilities of other tokens: %v", c)
			}
		}

		if len(ids) == 0 || len(logprobs) != len(ids) {
			t.Errorf("%d log probabilities of %d tokens", len(logprobs), len(ids))
		}
	}

	if chunks == 0 || got.Code != "OK" {
		t.Errorf("%d chunks, %s", chunks, got.Code)
	}
}
