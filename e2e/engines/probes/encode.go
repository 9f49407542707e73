package probes

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var generatePaths = map[string]string{
	sglang: "/generate", vllm: "/v1/completions", vllmGenerate: "/inference/v1/generate", llamacpp: "/completion",
}

// ownNames are the names of parameters that differ by kind.
var ownNames = map[string]map[string]string{
	sglang:       {"max": "max_new_tokens", "min": "min_new_tokens", "seed": "sampling_seed", "grammar": "structural_tag"},
	vllm:         {"max": "max_tokens", "min": "min_tokens"},
	vllmGenerate: {"max": "max_tokens", "min": "min_tokens"},
	llamacpp:     {"max": "n_predict"},
}

// encode returns the body of a request, for gRPC without its frame, and its headers.
func (e Engine) encode(p *probe, id string, prompt []harmony.Token) (body []byte, header map[string]string) {
	if s := e.service(); s != nil {
		if prompt == nil {
			panic("a call has no place for the prompt of " + p.name)
		}
		sampling := members{"top_p": 1, "top_k": s.noTopK, "repetition_penalty": 1, "n": 1}
		maps.Copy(sampling, e.sampling(p))
		top := members{"stream": !p.whole}
		maps.Copy(top, p.top)
		return s.encode(id, prompt, sampling, top), nil
	}

	top := members{"stream": !p.whole}
	promptName := e.addMembers(top, id, e.named(e.sampling(p)))
	if !p.whole && (e.Kind == vllm || e.Kind == vllmGenerate) {
		top["stream_options"] = members{"include_usage": true}
	}

	switch p.prompt.(type) {
	case nil, string:
		top[promptName] = prompt
	case members: // no prompt at all
	default:
		top[promptName] = p.prompt
	}

	// What the probe itself says comes last, so that it can leave anything out.
	maps.Copy(top, p.top)
	maps.DeleteFunc(top, func(_ string, value any) bool { return value == nil })

	header = map[string]string{}
	if value, ok := top["x-request-id"].(string); ok {
		header["x-request-id"] = value
		delete(top, "x-request-id")
	}
	body, err := json.Marshal(top)
	if err != nil {
		panic(err) // the table is made of what JSON has
	}
	return body, header
}

// sampling are the sampling parameters of a probe, by the names of the table.
func (e Engine) sampling(p *probe) members {
	sampling := members{
		"max": 60, "temperature": 0, "skip_special_tokens": false, "stop_token_ids": []int{200002, 200012},
	}
	switch e.Kind {
	case llamacpp:
		// Its model has no player: its answers end at the limit, and so must those of engine-sim.
		sampling["max"] = 4
	case sglang, sglangGRPC:
		sampling["no_stop_trim"] = true
	}
	maps.Copy(sampling, p.sampling)
	return sampling
}

// named gives parameters the names that an HTTP API has for them. It leaves out those that are nil.
func (e Engine) named(sampling members) members {
	named := members{}
	for name, value := range sampling {
		own, renamed := ownNames[e.Kind][name]
		switch {
		case value == nil:
		case renamed:
			named[own] = value
		case name == "grammar": // of vLLM
			named["structured_outputs"] = members{"structural_tag": value}
		default:
			named[name] = value
		}
	}
	return named
}

// addMembers adds what an HTTP API wants beside the prompt, and returns the prompt's name.
func (e Engine) addMembers(top members, id string, sampling members) (promptName string) {
	switch e.Kind {
	case sglang:
		maps.Copy(top, members{"rid": id, "sampling_params": sampling})
		return "input_ids"
	case vllmGenerate:
		maps.Copy(top, members{"model": Model, "x-request-id": id, "sampling_params": sampling})
		return "token_ids"
	case vllm:
		maps.Copy(top, sampling)
		maps.Copy(top, members{"model": Model, "return_token_ids": true, "x-request-id": id})
	case llamacpp:
		maps.Copy(top, sampling)
		maps.Copy(top, members{"return_tokens": true, "cache_prompt": true})
	}
	return "prompt"
}

// service is what differs between gRPC services. The numbers are those of smg-grpc-proto.
type service struct {
	path          string
	noTopK        int // no limit
	sampling, top map[string]protowire.Number
	response      names
	info          names
}

// floats are the parameters that are floats.
var floats = []string{
	"temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
}

var services = map[string]*service{
	sglangGRPC: {
		path: "/sglang.grpc.scheduler.SglangScheduler/", noTopK: -1,
		sampling: map[string]protowire.Number{
			"temperature": 1, "top_p": 2, "top_k": 3, "min_p": 4, "frequency_penalty": 5, "presence_penalty": 6,
			"repetition_penalty": 7, "max": 8, "stop_token_ids": 10, "skip_special_tokens": 11, "grammar": 16, "n": 17,
			"min": 18, "ignore_eos": 19, "no_stop_trim": 20, "stream_interval": 21,
		},
		top: map[string]protowire.Number{
			"return_logprob": 5, "logprob_start_len": 6, "top_logprobs_num": 7, "stream": 17,
		},
		response: names{1: {name: "request_id"}, 2: {"chunk", names{
			1: {name: "token_ids"}, 2: {name: "prompt_tokens"}, 3: {name: "completion_tokens"}, 4: {name: "cached_tokens"},
			5: {"logprobs", columns}, 8: {name: "index"},
		}}, 3: {"complete", names{
			1: {name: "token_ids"}, 2: {name: "finish_reason"}, 3: {name: "prompt_tokens"}, 4: {name: "completion_tokens"},
			5: {name: "cached_tokens"}, 6: {"logprobs", columns}, 8: {name: "matched"}, 11: {name: "index"},
		}}},
		info: names{
			1: {name: "model_path"}, 2: {name: "tokenizer_path"}, 3: {name: "is_generation"}, 5: {name: "weight_version"},
			6: {name: "served_model_name"}, 7: {name: "max_context_length"}, 8: {name: "vocab_size"}, 10: {name: "model_type"},
			11: {name: "eos_ids"}, 12: {name: "pad_id"}, 14: {name: "max_req_input_len"}, 15: {name: "architectures"},
			20: {name: "default_sampling_params"},
		},
	},
	vllmGRPC: {
		path: "/vllm.grpc.engine.VllmEngine/",
		sampling: map[string]protowire.Number{
			"temperature": 1, "top_p": 2, "top_k": 3, "min_p": 4, "frequency_penalty": 5, "presence_penalty": 6,
			"repetition_penalty": 7, "max": 8, "min": 9, "stop_token_ids": 11, "skip_special_tokens": 12, "ignore_eos": 14,
			"n": 15, "grammar": 19, "logprobs": 22, "seed": 24,
		},
		top: map[string]protowire.Number{"stream": 5},
		response: names{1: {"chunk", names{
			1: {name: "token_ids"}, 2: {name: "prompt_tokens"}, 3: {name: "completion_tokens"}, 4: {name: "cached_tokens"},
			5: {"logprobs", columns}, 7: {name: "index"},
		}}, 2: {"complete", names{
			1: {name: "token_ids"}, 2: {name: "finish_reason"}, 3: {name: "prompt_tokens"}, 4: {name: "completion_tokens"},
			5: {name: "cached_tokens"}, 6: {"logprobs", columns}, 8: {name: "index"}, 10: {name: "matched"},
		}}},
		info: names{
			1: {name: "model_path"}, 2: {name: "is_generation"}, 3: {name: "max_context_length"}, 4: {name: "vocab_size"},
			6: {name: "served_model_name"}, 7: {name: "tokenizer_path"}, 8: {name: "model_type"}, 9: {name: "architectures"},
			10: {name: "eos_ids"}, 11: {name: "pad_id"}, 13: {name: "max_req_input_len"}, 14: {name: "default_sampling_params"},
		},
	},
}

func (e Engine) service() *service { return services[e.Kind] }

func (s *service) encode(id string, prompt []harmony.Token, sampling, top members) []byte {
	b := appendText(nil, 1, id)
	b = appendInner(b, 2, appendField(nil, 2, prompt))
	var inner []byte
	for _, name := range slices.Sorted(maps.Keys(sampling)) {
		inner = appendParameter(inner, s.sampling[name], name, sampling[name])
	}
	b = appendInner(b, 4, inner)
	for _, name := range slices.Sorted(maps.Keys(top)) {
		b = appendParameter(b, s.top[name], name, top[name])
	}
	return b
}

func appendParameter(b []byte, number protowire.Number, name string, value any) []byte {
	if number == 0 {
		panic("the service has no " + name)
	}
	if n, ok := value.(int); ok && slices.Contains(floats, name) {
		b = protowire.AppendTag(b, number, protowire.Fixed32Type)
		return protowire.AppendFixed32(b, math.Float32bits(float32(n)))
	}
	return appendField(b, number, value)
}

func appendField(b []byte, number protowire.Number, value any) []byte {
	switch v := value.(type) {
	case nil:
	case bool:
		b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), protowire.EncodeBool(v))
	case int:
		b = protowire.AppendTag(b, number, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(v)) //nolint:gosec // two's complement is protobuf's form
	case string:
		b = appendText(b, number, v)
	case []int:
		var packed []byte
		for _, n := range v {
			packed = protowire.AppendVarint(packed, uint64(n)) //nolint:gosec // ids
		}
		b = appendInner(b, number, packed)
	case []harmony.Token:
		var packed []byte
		for _, n := range v {
			packed = protowire.AppendVarint(packed, uint64(n))
		}
		b = appendInner(b, number, packed)
	default:
		panic("no such field: " + strconv.Itoa(int(number)))
	}
	return b
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendInner(b []byte, number protowire.Number, inner []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), inner)
}

// frame makes a gRPC message of bytes.
func frame(b []byte) []byte {
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))) //nolint:gosec // a short message
	return append(framed, b...)
}
