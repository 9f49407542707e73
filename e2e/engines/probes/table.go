package probes

import (
	"strings"
	"time"
)

// Kinds that have things in common.
const (
	overHTTP   = "sglang vllm vllm-generate llamacpp"
	overGRPC   = "sglang-grpc vllm-grpc"
	ofSGLang   = "sglang sglang-grpc"
	ofVLLM     = "vllm vllm-generate vllm-grpc"
	vllmHTTP   = "vllm vllm-generate"
	takeIDs    = "sglang sglang-grpc vllm vllm-generate vllm-grpc" // that have all ids of an output
	severalIDs = "sglang sglang-grpc vllm vllm-generate"
	jsonTokens = "sglang vllm vllm-generate"
)

const (
	hello = "THINK Hm.\nSAY Hello, naïve 🙂!"
	brief = "NOTHINK\nSAY yes"
	// Long enough that something can be done meanwhile: SGLang takes two seconds to abort a request
	// whose id is taken.
	slow = "NOTHINK\nWORDS 60 60"
)

// badTag is a structural tag that does not compile.
const badTag = `{"type":"structural_tag","format":{"type":"grammar","grammar":"root ::= ((("}}`

// Tags that accept one text: as the filter writes them, and with names of tokens.
const (
	goodTag = `{"type":"structural_tag","format":{"type":"sequence","elements":[` +
		`{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200005}},` +
		`{"type":"const_string","value":"final"},` +
		`{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200008}},` +
		`{"type":"const_string","value":"yes"}]}}`
	namedTag = `{"type":"structural_tag","format":{"type":"sequence","elements":[` +
		`{"type":"token","token":"<|channel|>"},{"type":"const_string","value":"final"},` +
		`{"type":"token","token":"<|message|>"},{"type":"const_string","value":"yes"}]}}`
)

// table has the probes in the order in which they are sent. Each has a script of its own
// where the prefix cache shows.
var table = append([]probe{
	// What every answer has.
	{name: "answer", script: hello},
	{name: "answer, whole", script: hello, whole: true},
	{name: "call", kinds: takeIDs, script: `CALL get_weather {"city":"Paris"}`},
	{name: "call, whole", kinds: takeIDs, script: `CALL get_weather {"city":"Paris"}`, whole: true},
	{name: "length", script: "WORDS 50", sampling: members{"max": 6}},
	{name: "length, whole", script: "WORDS 50", sampling: members{"max": 6}, whole: true},
	{name: "one token", script: "WORDS 50", sampling: members{"max": 1}},
	{name: "end exactly at the limit", kinds: takeIDs, script: brief, sampling: members{"max": 5}},
	{name: "cached", script: "one two three four five six seven eight nine ten eleven twelve\n" + brief, act: again},
	{name: "cached, whole", script: "one two three four five six seven eight nine ten eleven twelve\n" + brief, act: again, whole: true},

	// What a request may ask for.
	{name: "two choices", kinds: takeIDs, script: brief, sampling: members{"n": 2, "temperature": 1}},
	{name: "two choices, whole", kinds: jsonTokens, script: brief, sampling: members{"n": 2, "temperature": 1}, whole: true},
	{name: "interval", kinds: severalIDs, script: "NOTHINK\nWORDS 10", sampling: members{"stream_interval": 64}},
	{name: "stop id", kinds: takeIDs, script: hello, sampling: members{"stop_token_ids": []int{200002, 200012, 200007}}},
	{name: "no stop ids", kinds: takeIDs, script: brief, sampling: members{"stop_token_ids": nil}},
	{name: "minimum", kinds: takeIDs, script: brief, sampling: members{"min": 20, "max": 30}, vague: true},
	{name: "ignored end", kinds: takeIDs, script: brief, sampling: members{"ignore_eos": true, "max": 12}, vague: true},
	{name: "seed", kinds: "sglang vllm vllm-generate vllm-grpc", script: brief, sampling: members{"seed": 7}},
	{name: "bias", script: brief, kinds: jsonTokens, sampling: members{"logit_bias": members{"1000": -5}}},
	{name: "without a limit", kinds: jsonTokens, script: brief, sampling: members{"max": nil}},
	{name: "no id", kinds: jsonTokens, script: brief, top: members{"rid": nil, "x-request-id": nil}},
	{name: "likely, none", kinds: "sglang", script: brief, top: members{"return_logprob": true, "logprob_start_len": -1}},
	{name: "likely, two", kinds: ofSGLang, script: brief, top: members{"return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": 2}},
	{name: "likely, two, whole", kinds: "sglang", script: brief, whole: true, top: members{"return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": 2}},
	{name: "likely, none of vLLM", kinds: ofVLLM, script: brief, sampling: members{"logprobs": 0}},
	{name: "likely, two of vLLM", kinds: ofVLLM, script: brief, sampling: members{"logprobs": 2}},
	{name: "likely, two of vLLM, whole", kinds: vllmHTTP, script: brief, whole: true, sampling: members{"logprobs": 2}},
	{name: "likely as ids", kinds: vllm, script: brief, sampling: members{"logprobs": 1}, top: members{"return_tokens_as_token_ids": true}},
	{name: "usage in every event", kinds: vllm, script: brief, top: members{"stream_options": members{"include_usage": true, "continuous_usage_stats": true}}},
	{name: "no usage", kinds: vllmHTTP, script: brief, top: members{"stream_options": nil}},
	{name: "no ids", kinds: "vllm llamacpp", script: brief, top: members{"return_token_ids": nil, "return_tokens": nil}},
	// SGLang takes names too, but its xgrammar then confuses the next tag that differs in tokens only.
	{name: "grammar", kinds: ofVLLM, script: brief, sampling: members{"grammar": namedTag}},
	{name: "grammar with ids", kinds: severalIDs, script: brief, sampling: members{"grammar": goodTag}},
	{name: "salt", kinds: jsonTokens, script: brief, top: members{"cache_salt": "one"}},
	{name: "priority", kinds: jsonTokens, script: brief, top: members{"priority": 1}},
	{name: "unknown member", kinds: "sglang", script: brief, top: members{"nosuch": 7}},

	// Whole requests that are refused.
	{name: "prompt too long", prompt: strings.Repeat(",", ContextLength)},
	{name: "prompt too long, whole", prompt: strings.Repeat(",", ContextLength), whole: true},
	{name: "prompt without room", prompt: strings.Repeat(",", ContextLength-1), sampling: members{"max": 1}, kinds: ofVLLM, vague: true},
	{name: "limit too long", kinds: takeIDs, script: brief, sampling: members{"max": ContextLength}},
	{name: "limit too long, whole", kinds: jsonTokens, script: brief, sampling: members{"max": ContextLength}, whole: true},
	{name: "limit above the context", kinds: takeIDs, script: brief, sampling: members{"max": ContextLength + 1}},
	// Over gRPC it kills SGLang 0.5.23: its scheduler ends by a RuntimeError, and the server with it.
	{name: "empty prompt", kinds: "sglang vllm vllm-generate vllm-grpc", prompt: ""},
	{name: "empty prompt, whole", kinds: jsonTokens, prompt: "", whole: true},
	{name: "no prompt", kinds: overHTTP, prompt: members{}},
	{name: "prompt of words", kinds: jsonTokens, prompt: []any{"x"}},
	{name: "prompt of an object", kinds: jsonTokens, prompt: []any{members{"a": 1}}},
	{name: "id outside the vocabulary", kinds: vllmHTTP + " llamacpp", prompt: []any{300000}},
	{name: "id of a number", kinds: "sglang", script: brief, top: members{"rid": 5}},
	{name: "unknown model", kinds: vllmHTTP, script: brief, top: members{"model": "nobody"}},
	{name: "options without a stream", kinds: vllmHTTP, script: brief, whole: true, top: members{"stream_options": members{"include_usage": true}}},
	{name: "salt of no text", kinds: vllmHTTP, script: brief, top: members{"cache_salt": ""}},
	{name: "grammar that does not compile", kinds: takeIDs, script: brief, sampling: members{"grammar": badTag}, vague: true},
	{name: "grammar that does not compile, whole", kinds: jsonTokens, script: brief, sampling: members{"grammar": badTag}, whole: true},
	{name: "grammar that is no tag", kinds: takeIDs, script: brief, sampling: members{"grammar": `{"type":"nosuch"}`}, vague: true},

	// What is no request at all.
	{name: "broken JSON", kinds: overHTTP, method: "POST", contentType: "application/json", body: `{"stream":tru`},
	{name: "a list", kinds: overHTTP, method: "POST", contentType: "application/json", body: `[1]`},
	{name: "empty body", kinds: overHTTP, method: "POST", contentType: "application/json"},
	{name: "wrong method", kinds: overHTTP, method: "GET"},
	{name: "unknown path", kinds: overHTTP, method: "POST", path: "/nosuch", contentType: "application/json", body: "{}"},
	{name: "unknown call", kinds: overGRPC, method: "POST", path: "NoSuch"},
	{name: "broken message", kinds: overGRPC, method: "POST", path: "Generate", body: "\x0a\xff"},
	{name: "health", kinds: overHTTP, method: "GET", path: "/health"},
	{name: "health call", kinds: overGRPC, method: "POST", path: "HealthCheck"},
	{name: "models", kinds: "sglang vllm llamacpp", method: "GET", path: "/v1/models"},
	{name: "model info", kinds: sglang, method: "GET", path: "/get_model_info"},
	{name: "model info, new path", kinds: sglang, method: "GET", path: "/model_info"},
	{name: "model info call", kinds: overGRPC, method: "POST", path: "GetModelInfo"},

	// Ends that come from elsewhere.
	{name: "aborted", kinds: "sglang", script: slow, act: abort, vague: true},
	{name: "aborted by a call", kinds: sglangGRPC, script: slow, act: abort, vague: true, patience: 10 * time.Second},
	{name: "aborted, whole", kinds: "sglang", script: slow, act: abort, vague: true, whole: true},
	{name: "aborted with two choices", kinds: "sglang", script: slow, act: abort, vague: true, sampling: members{"n": 2, "temperature": 1}},
	{name: "aborted with a likely", kinds: "sglang", script: slow, act: abort, vague: true, top: members{"return_logprob": true, "top_logprobs_num": 1, "logprob_start_len": -1}},
	// Over gRPC it is a call that is left: whether SGLang notices that in time to end the other one is chance.
	{name: "aborted by the beginning of its id", kinds: "sglang", script: slow, act: abortPrefix, vague: true},
	{name: "all aborted", kinds: "sglang", script: slow, act: abortAll, vague: true},
	{name: "abort of nothing", kinds: "sglang", method: "POST", path: "/abort_request", contentType: "application/json", body: `{"rid":"nosuch"}`},
	{name: "abort without an id", kinds: "sglang", method: "POST", path: "/abort_request", contentType: "application/json", body: `{}`},
	// Over gRPC SGLang 0.5.23 takes it and mixes the two up: which of them ends, and how, is chance.
	{name: "its id is taken", kinds: jsonTokens + " vllm-grpc", script: slow, act: twice, vague: true},
	{name: "its id is taken, whole", kinds: jsonTokens, script: slow, act: twice, vague: true, whole: true},
	// SGLang over HTTP notices it up to seconds later, and ends what has the id then: whether that is the next one is chance.
	{name: "its client has left", kinds: ofVLLM + " llamacpp sglang-grpc", script: slow, act: leave, vague: true},
}, refusals()...)

// refusals are requests with one parameter that the engine does not take.
func refusals() []probe {
	rows := []struct {
		name, kinds string
		value       any
	}{
		{"temperature", "", -1},
		{"top_p", takeIDs, 0},
		{"top_p", takeIDs, 2},
		{"top_k", takeIDs, 0},
		{"top_k", severalIDs, -2},
		{"min_p", takeIDs, 2},
		{"frequency_penalty", takeIDs, 3},
		{"presence_penalty", takeIDs, -3},
		{"repetition_penalty", takeIDs, 0},
		{"repetition_penalty", takeIDs, 3},
		{"max", takeIDs, 0},
		{"max", "sglang vllm vllm-generate", -1},
		{"min", takeIDs, 100},
		{"n", takeIDs, 0},
		{"logprobs", ofVLLM, 21},
		{"logprobs", ofVLLM, -2},
		{"temperature", overHTTP, "hot"},
		{"max", overHTTP, "many"},
		{"stop_token_ids", jsonTokens, []any{"x"}},
		{"logit_bias", jsonTokens, members{"x": 1}},
		{"logit_bias", jsonTokens, members{"300000": 1}},
		{"nosuch", overHTTP, 7},
		{"ignore_eos", "sglang", 1},
		{"logit_bias", "sglang", []any{}},
		{"repeat_last_n", llamacpp, -1},
	}
	// SGLang refuses a stream in the stream, and the same request with a status otherwise.
	whole := []string{"temperature", "top_p", "n"}

	list := make([]probe, 0, len(rows)+len(whole))
	for _, r := range rows {
		list = append(list, probe{
			name: "refusal: " + show(r.name, r.value), kinds: r.kinds, script: brief,
			sampling: members{r.name: r.value},
			// Over gRPC SGLang takes anything, and the weights write.
			vague: r.name == "temperature" || r.name == "min",
		})
	}
	for _, name := range whole {
		list = append(list, probe{
			name: "refusal, whole: " + show(name, -1), kinds: jsonTokens, script: brief, whole: true,
			sampling: members{name: -1},
		})
	}
	return list
}
