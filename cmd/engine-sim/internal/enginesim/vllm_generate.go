package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// vllmGenerateAPI is POST /inference/v1/generate of vLLM 0.32.
type vllmGenerateAPI struct{ vllmAPI }

func (vllmGenerateAPI) read(s *Sim, header http.Header, body map[string]json.RawMessage) (*modelRequest, *apiError) {
	p := params(body)
	req := &modelRequest{model: s.options.Models[0], returnIDs: true}
	var options struct {
		Usage bool `json:"include_usage"`
	}
	var inner map[string]json.RawMessage
	if err := p.getAll(
		field{"model", &req.model}, field{"stream", &req.stream}, field{"stream_options", &options},
		field{"cache_salt", &req.salt}, field{"request_id", &req.id}, field{"sampling_params", &inner},
	); err != nil {
		return nil, err
	}

	req.includeUsage = options.Usage

	if id := header.Get("x-request-id"); id != "" {
		req.id = id
	}
	if req.id == "" {
		req.id = s.nextID()
	}

	var err *apiError
	if req.prompt, err = p.takePrompt("token_ids"); err != nil {
		return req, err
	}
	if !s.serves(req.model) {
		return req, unknownModel(req.model)
	}

	// Without max_tokens this API fills the context, where completions stop at 16.
	limit := s.options.ContextLength
	defaults := sampling{temperature: 1, topP: 1, n: 1, maxTokens: limit}
	sampling, err := params(inner).readSampling(defaults, "min_tokens", "max_tokens", "seed")
	if err != nil {
		return req, err
	}

	if len(req.prompt) >= limit {
		return req, promptTooLong(limit, len(req.prompt))
	}

	if req.logprobs, err = params(inner).readLogprobs(); err != nil {
		return req, err
	}

	req.n, req.seed, req.interval = sampling.n, uint64(sampling.seed), sampling.interval
	req.limits = sampling.limits(limit - len(req.prompt))
	return req, nil
}

func (vllmGenerateAPI) begin(_ *Sim, req *modelRequest, choices []*choice) reply {
	return &vllmGenerateReply{req: req, choices: choices}
}

type vllmGenerateReply struct {
	req     *modelRequest
	choices []*choice
}

func (r *vllmGenerateReply) event(b []byte, c *choice, from int) []byte {
	b = append(r.head(b), `,"usage":null,"output_mode":"tokens","choices":[`...)
	return append(r.choice(b, c, from), "]}"...)
}

func (r *vllmGenerateReply) head(b []byte) []byte {
	return appendQuoted(append(b, `{"request_id":`...), "generate-tokens-"+r.req.id)
}

func (r *vllmGenerateReply) choice(b []byte, c *choice, from int) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(c.index), 10)
	b = append(b, `,"finish_reason":`...)
	b = appendVLLMFinish(b, c)
	b = append(b, `,"token_ids":`...)
	b = appendIDs(b, c.output[from:])
	b = append(b, `,"routed_experts":null,"sampling_mask":null,"weight_versions":null,"logprobs":`...)
	return append(appendGenerateLogprobs(b, r.req, c, from), '}')
}

// appendVLLMFinish appends the values of finish_reason and stop_reason.
func appendVLLMFinish(b []byte, c *choice) []byte {
	stopReason := "null"
	switch {
	case c.finish == "":
		b = append(b, "null"...)
	case abortStatus(c.finish) != 0:
		b = append(b, `"abort"`...)
	default:
		b = appendQuoted(b, c.finish)
		// <|return|> is the model's primary end token, of which vLLM says
		// nothing, even if the request lists it.
		if id := c.output[max(len(c.output)-1, 0):]; c.finish == "stop" && id[0] != harmony.TokenReturn {
			stopReason = strconv.FormatUint(uint64(id[0]), 10)
		}
	}
	b = append(b, `,"stop_reason":`...)
	return append(b, stopReason...)
}

func (r *vllmGenerateReply) usage(b []byte) []byte {
	if !r.req.includeUsage {
		return b
	}
	b = append(r.head(b), `,"usage":`...)
	b = appendVLLMUsage(b, r.req, r.choices, true)
	return append(b, `,"output_mode":"tokens","choices":[]}`...)
}

// appendVLLMUsage appends the usage object.
func appendVLLMUsage(b []byte, req *modelRequest, choices []*choice, details bool) []byte {
	completion := 0
	for _, c := range choices {
		completion += len(c.output)
	}
	total := len(req.prompt) + completion
	b = fmt.Appendf(b, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`,
		len(req.prompt), total, completion)
	// Usage in every chunk has no details.
	if details {
		b = fmt.Appendf(b, `,"prompt_tokens_details":{"cached_tokens":%d}`, req.cached)
	}
	return append(b, '}')
}

func (r *vllmGenerateReply) single(b []byte) []byte {
	b = append(appendQuoted(append(r.head(b), `,"model":`...), r.req.model), `,"created":`...)
	b = append(strconv.AppendInt(b, r.req.created, 10), `,"usage":`...)
	b = append(appendVLLMUsage(b, r.req, r.choices, true), `,"output_mode":"tokens","choices":[`...)
	for i, c := range r.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.choice(b, c, 0)
	}
	return append(r.req.appendTransfer(append(b, ']')), '}')
}
