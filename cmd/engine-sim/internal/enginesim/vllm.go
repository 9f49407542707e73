package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// vllmAPI is POST /v1/completions of vLLM 0.33.
type vllmAPI struct{}

func (vllmAPI) read(s *Sim, header http.Header, body map[string]json.RawMessage) (*modelRequest, *apiError) {
	p := params(body)
	req := &modelRequest{}
	var options struct {
		Usage      bool `json:"include_usage"`
		Continuous bool `json:"continuous_usage_stats"`
	}
	if err := p.getAll(
		field{"model", &req.model}, field{"stream", &req.stream}, field{"stream_options", &options},
		field{"return_token_ids", &req.returnIDs}, field{"cache_salt", &req.salt}, field{"request_id", &req.id},
		field{"return_tokens_as_token_ids", &req.tokensAsIDs},
	); err != nil {
		return nil, err
	}

	req.includeUsage, req.continuousUsage = options.Usage, options.Continuous

	if id := header.Get("x-request-id"); id != "" {
		req.id = id
	}
	if req.id == "" {
		req.id = s.nextID()
	}

	if string(p["prompt"]) == "[]" {
		return req, badRequest("prompt", "You must pass at least one prompt (parameter=prompt)")
	}
	var err *apiError
	if req.prompt, err = p.takePrompt("prompt"); err != nil {
		return req, err
	}

	if !s.serves(req.model) {
		return req, s.unknownModel(req.model)
	}

	if !req.stream && len(p["stream_options"]) > 0 {
		return req, badRequest("stream_options",
			"Stream options can only be defined when `stream=True`. (parameter=stream_options)")
	}

	// 16 is vLLM's own default.
	defaults := sampling{temperature: 1, topP: 1, n: 1, maxTokens: 16}
	sampling, err := p.readSampling(defaults, "min_tokens", "max_tokens", "seed")
	err = refusedTag(err, badRequest("structured_outputs",
		"Invalid structured_outputs structural_tag specification. (parameter=structured_outputs)"))
	limit := s.options.ContextLength
	if err := firstOf(
		err, p.emptySalt(), p.checkCompletion(), checkGreedy(sampling), checkLength(limit, len(req.prompt), sampling),
		p.checkRanges(), p.checkBias(),
	); err != nil {
		return req, err
	}

	if req.logprobs, err = p.readLogprobs(); err != nil {
		return req, err
	}

	req.n, req.seed, req.interval = sampling.n, uint64(sampling.seed), sampling.interval
	req.limits = sampling.limits(limit - len(req.prompt))
	return req, nil
}

// checkCompletion refuses what only completions refuse, or in other words.
func (p params) checkCompletion() *apiError {
	if bad := p.badBiases(); len(bad) > 0 {
		list := "['" + strings.Join(bad, "', '") + "']"
		return badRequest("logit_bias", fmt.Sprintf("logit_bias contains key(s) that cannot be converted to integer "+
			"token IDs: %s (parameter=logit_bias, value=%s)", list, list))
	}
	logprobs := 0
	if err := p.get("logprobs", &logprobs); err != nil || logprobs >= -1 {
		return err
	}
	return badRequest("logprobs", fmt.Sprintf("`logprobs` must be a positive value or -1. "+
		"(parameter=logprobs, value=%d)", logprobs))
}

func checkGreedy(s sampling) *apiError {
	if s.n > 1 && s.temperature == 0 {
		return badRequest("", fmt.Sprintf("n must be 1 when using greedy sampling, got %d.", s.n))
	}
	return nil
}

// checkLength checks the lengths of the prompt and the output. vLLM shortens the limit silently to
// what fits after the prompt, but not to the context.
func checkLength(limit, size int, s sampling) *apiError {
	switch {
	case s.maxTokens > limit:
		return outputTooLong(limit, s.maxTokens)
	case size > limit:
		return promptTooLong(limit, size)
	case size == limit:
		// The limit is shortened to nothing.
		return tooFewTokens("max_tokens", 0)
	}
	return nil
}

func (s *Sim) unknownModel(model string) *apiError {
	return &apiError{
		status: http.StatusNotFound,
		message: "The model `" + model + "` does not exist. Valid aliases: " +
			strings.Join(s.options.Models, ", ") + ".",
		kind:  "NotFoundError",
		param: "model",
	}
}

func promptTooLong(limit, size int) *apiError {
	return badRequest("input_tokens", fmt.Sprintf("This model's maximum context length is %d tokens. "+
		"However, your prompt contains %d input tokens, "+
		"which exceeds this limit even without any output tokens. "+
		"Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
		limit, size, size))
}

func outputTooLong(limit, size int) *apiError {
	return badRequest("max_tokens", fmt.Sprintf("max_tokens=%d cannot be greater than max_model_len=%d. "+
		"Please request fewer output tokens. (parameter=max_tokens, value=%d)",
		size, limit, size))
}

func (vllmAPI) writeError(w http.ResponseWriter, err *apiError, stream bool) {
	if stream && err.late {
		o := newWire(w, formEvents, Behavior{})
		if o.begin() == nil {
			_ = o.sendError(err) // the client may have disconnected
		}
		return
	}
	writeJSON(w, err.status, appendError(nil, err))
}

func (vllmAPI) begin(_ *Sim, req *modelRequest, choices []*choice) reply {
	return &vllmReply{
		req: req, id: quote("cmpl-" + req.id), choices: choices, texts: make([]harmony.Decoder, len(choices)),
		offsets: make([]int, len(choices)),
	}
}

// buildName is the system_fingerprint of vLLM.
const buildName = "engine-sim-1"

type vllmReply struct {
	req     *modelRequest
	id      string // as JSON
	choices []*choice
	texts   []harmony.Decoder // by choice
	offsets []int             // by choice: characters before the next event
	text    []byte
}

func (r *vllmReply) event(b []byte, c *choice, from int) []byte {
	b = r.head(b)
	b = append(r.choice(b, c, from, from == 0), `}],"kv_transfer_params":null`...)
	if r.req.continuousUsage {
		b = append(b, `,"usage":`...)
		b = append(appendVLLMUsage(b, r.req, r.choices), '}')
	}
	// The event of the usage has it otherwise.
	if c.finish != "" && !r.req.includeUsage {
		b = append(b, `,"system_fingerprint":"`+buildName+`"`...)
	}
	return append(b, '}')
}

func (r *vllmReply) head(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = append(b, r.id...)
	b = append(b, `,"object":"text_completion","created":`...)
	b = strconv.AppendInt(b, r.req.created, 10)
	b = append(b, `,"model":`...)
	b = appendQuoted(b, r.req.model)
	return append(b, `,"choices":[`...)
}

// choice encodes a choice without its closing brace.
func (r *vllmReply) choice(b []byte, c *choice, from int, first bool) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(c.index), 10)
	b = append(b, `,"text":`...)
	text, offset := r.newText(c, from), r.offsets[c.index]
	r.offsets[c.index] += utf8.RuneCountInString(text)
	b = appendQuoted(b, text)
	b = append(b, `,"logprobs":`...)
	b = appendCompletionLogprobs(b, r.req, c, from, offset)
	b = append(b, `,"finish_reason":`...)
	b = appendVLLMFinish(b, c)
	if !r.req.returnIDs {
		return append(b, `,"prompt_token_ids":null,"token_ids":null,"weight_versions":null`...)
	}
	b = append(b, `,"prompt_token_ids":`...)
	// The prompt is in the first chunk of each choice only, and null later.
	if first {
		b = appendIDs(b, r.req.prompt)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"token_ids":`...)
	b = appendIDs(b, c.output[from:])
	return append(b, `,"weight_versions":null`...)
}

// newText returns the text of the output from an id on, without the stop token.
func (r *vllmReply) newText(c *choice, from int) string {
	d := &r.texts[c.index]
	b := r.text[:0]
	for i, id := range c.output[from:] {
		// The stop token is in token_ids only.
		if c.finish == "stop" && from+i == len(c.output)-1 {
			break
		}
		b, _ = d.Append(b, id)
	}
	// Bytes of a character that never ended become text now.
	if c.finish != "" {
		b = d.Flush(b)
	}
	r.text = b
	return string(b)
}

func (r *vllmReply) usage(b []byte) []byte {
	if !r.req.includeUsage {
		return b
	}
	b = append(r.head(b), `],"usage":`...)
	b = appendStreamUsage(b, r.req, r.choices)
	return append(b, `,"system_fingerprint":"`+buildName+`"}`...)
}

func (r *vllmReply) single(b []byte) []byte {
	b = r.head(b)
	for i, c := range r.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(r.choice(b, c, 0, true), `,"routed_experts":null,"prompt_logprobs":null}`...)
	}
	b = append(b, `],"service_tier":null,"system_fingerprint":"`+buildName+`","usage":`...)
	b = appendWholeUsage(b, r.req, r.choices)
	return append(r.req.appendTransfer(b), '}')
}
