package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// vllmGenerateAPI is POST /inference/v1/generate of vLLM 0.33.
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

	err := p.checkGenerate()
	if err != nil {
		return req, err
	}
	if req.prompt, err = p.takePrompt("token_ids"); err != nil {
		return req, err
	}
	if !s.serves(req.model) {
		return req, s.unknownModel(req.model)
	}

	// Without max_tokens this API fills the context, where completions stop at 16.
	limit := s.options.ContextLength
	defaults := sampling{temperature: 1, topP: 1, n: 1, maxTokens: limit}
	sampling, err := params(inner).readSampling(defaults, "min_tokens", "max_tokens", "seed")
	err = refusedTag(err, afterHeaders(badRequest("", invalidGrammar)))
	if err := firstOf(
		ofObject(err, inner), p.emptySalt(), params(inner).checkBiasNames(), params(inner).checkRanges(),
		checkDecoder(limit, len(req.prompt)), params(inner).checkBias(),
	); err != nil {
		return req, err
	}

	if req.logprobs, err = params(inner).readLogprobs(); err != nil {
		return req, err
	}

	req.n, req.seed, req.interval = sampling.n, uint64(sampling.seed), sampling.interval
	req.limits = sampling.limits(limit - len(req.prompt))
	return req, nil
}

// invalidGrammar is vLLM's error of any tag that xgrammar does not take: it reads the tag in an
// older form then, which has this member.
const invalidGrammar = "Invalid grammar specification: 'triggers'"

// checkGenerate refuses a prompt that is no list of integers.
func (p params) checkGenerate() *apiError {
	const name = "token_ids"
	raw := p[name]
	if len(raw) == 0 {
		input := fmt.Sprintf("<dict of %d items>", len(p))
		return pydantic([]finding{{kind: "missing", where: name, what: "Field required", input: input}})
	}
	var elements []json.RawMessage
	_, bad := parseIDs(raw)
	switch {
	case json.Unmarshal(raw, &elements) != nil:
		return nil // takePrompt says what is wrong
	case len(elements) == 0:
		return pydantic([]finding{{
			kind: "too_short", where: name, what: "List should have at least 1 item after validation, not 0",
			input: inputShape(raw), context: "'field_type': 'List', 'min_length': 1, 'actual_length': 0",
		}})
	case bad >= 0 && bad < len(elements):
		return pydantic([]finding{noInteger(name+"."+strconv.Itoa(bad), elements[bad])})
	}
	return nil
}

// checkBiasNames refuses a logit_bias whose names are no numbers.
func (p params) checkBiasNames() *apiError {
	bad := p.badBiases()
	if len(bad) == 0 {
		return nil
	}
	return ofObject(pydantic([]finding{noInteger("logit_bias."+bad[0], json.RawMessage(quote(bad[0])))}), p)
}

// ofObject is the validation error of a member of the sampling parameters, which are an object or an
// instance of their class.
func ofObject(err *apiError, inner params) *apiError {
	if err == nil || len(err.found) == 0 {
		return err
	}
	const name = "sampling_params"
	found := []finding{{
		kind: "is_instance_of", where: name, what: "Input should be an instance of SamplingParams",
		input: fmt.Sprintf("<dict of %d items>", len(inner)), context: "'class': 'SamplingParams'",
	}}
	for _, f := range err.found {
		f.where = name + "." + f.where
		found = append(found, f)
	}
	return pydantic(found)
}

// checkDecoder refuses a prompt without room for an output, in the words of the engine below vLLM's APIs.
func checkDecoder(limit, size int) *apiError {
	if size < limit {
		return nil
	}
	return afterHeaders(badRequest("", fmt.Sprintf("The decoder prompt (length %d) plus the number of requested "+
		"output tokens (at least 1) is longer than the maximum model length of %d. Make sure that `max_model_len` is "+
		"no smaller than the number of text tokens (prompt + requested output tokens).", size, limit)))
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
	b = append(b, `,"routed_experts":null,"sampling_mask":null,"weight_versions":`...)
	if c.finish == "" {
		b = append(b, "null"...)
	} else {
		b = fmt.Appendf(b, `[{"start":0,"end":%d,"version":%q}]`, len(c.output), weightVersion)
	}
	b = append(b, `,"logprobs":`...)
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
		// nothing, even if the request lists it, unless it is only one of those listed.
		id := c.output[max(len(c.output)-1, 0):]
		if c.finish == "stop" && (id[0] != harmony.TokenReturn || c.ignoreEOS) {
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
	b = appendStreamUsage(b, r.req, r.choices)
	return append(b, `,"output_mode":"tokens","choices":[]}`...)
}

// appendVLLMUsage appends the usage object without details, and without its closing brace.
func appendVLLMUsage(b []byte, req *modelRequest, choices []*choice) []byte {
	completion := 0
	for _, c := range choices {
		completion += len(c.output)
	}
	return fmt.Appendf(b, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`,
		len(req.prompt), len(req.prompt)+completion, completion)
}

// appendStreamUsage appends the usage at the end of a stream.
func appendStreamUsage(b []byte, req *modelRequest, choices []*choice) []byte {
	b = appendVLLMUsage(b, req, choices)
	return fmt.Appendf(b, `,"prompt_tokens_details":{"cached_tokens":%d}}`, req.cached)
}

// appendWholeUsage appends the usage of a reply that is not streamed, which has all members.
func appendWholeUsage(b []byte, req *modelRequest, choices []*choice) []byte {
	b = appendVLLMUsage(b, req, choices)
	return fmt.Appendf(b, `,"completion_tokens_details":null,"prompt_tokens_details":`+
		`{"cached_tokens":%d,"created_cache_tokens":null,"multimodal_tokens":null}}`, req.cached)
}

func (r *vllmGenerateReply) single(b []byte) []byte {
	b = append(appendQuoted(append(r.head(b), `,"model":`...), r.req.model), `,"created":`...)
	b = append(strconv.AppendInt(b, r.req.created, 10), `,"usage":`...)
	b = append(appendWholeUsage(b, r.req, r.choices), `,"output_mode":"tokens","choices":[`...)
	for i, c := range r.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.choice(b, c, 0)
	}
	b = append(b, `],"mm_placeholders":null,"prompt_logprobs":null,"prompt_token_id_logprobs":null`...)
	b = append(b, `,"prompt_token_ids":null`...)
	return append(r.req.appendTransfer(b), '}')
}
