package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// sglangAPI is POST /generate of SGLang 0.5.
type sglangAPI struct{}

// weightVersion is the weight_version of SGLang.
const weightVersion = "sim-weights-1"

func (sglangAPI) read(s *Sim, _ http.Header, body map[string]json.RawMessage) (*modelRequest, *apiError) {
	p := params(body)
	req := &modelRequest{model: s.options.Models[0], abortable: true}
	var inner map[string]json.RawMessage
	if err := p.getAll(
		field{"rid", &req.id}, field{"stream", &req.stream},
		field{"cache_salt", &req.salt}, field{"sampling_params", &inner},
	); err != nil {
		return nil, ofMember(err, p)
	}
	if err := firstOf(p.checkElements(), params(inner).checkContract()); err != nil {
		return nil, err
	}

	if req.id == "" {
		req.id = s.nextID()
	}

	source := "input_ids"
	if _, ok := p["text"]; ok {
		source = "text"
	}

	if !p.has(source) {
		return req, refusal("Either text, input_ids or input_embeds should be provided.")
	}
	if string(p[source]) == "[]" {
		return req, refusal("input_ids cannot be empty.")
	}

	var err *apiError
	if req.prompt, err = p.takePrompt(source); err != nil {
		return req, err
	}

	// 128 is SGLang's own default.
	sampling := sampling{temperature: 1, topP: 1, n: 1, maxTokens: 128}
	late, err := params(inner).readSGLang(&sampling)
	if err != nil {
		err.kind, err.param = "invalid_request_error", ""
		return req, err
	}

	if err := params(inner).get("no_stop_trim", &req.keepsEnd); err != nil {
		return req, err
	}

	limit, size := s.options.ContextLength, len(req.prompt)
	if size >= limit {
		return req, refusal("The input (%d tokens) is longer than the model's context length (%d tokens).", size, limit)
	}
	// Unlike vLLM, SGLang does not shorten the limit to what fits.
	if total := size + sampling.maxTokens; total > limit {
		return req, refusal("Requested token count exceeds the model's maximum context length of %d tokens. "+
			"You requested a total of %d tokens: "+
			"%d tokens from the input messages and %d tokens for the completion. "+
			"Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
			limit, total, size, sampling.maxTokens)
	}

	if req.logprobs, err = p.readSGLangLogprobs(); err != nil {
		return req, err
	}

	req.late = late
	req.n, req.seed, req.interval = sampling.n, uint64(sampling.seed), sampling.interval
	req.limits = sampling.limits(limit - size)
	return req, nil
}

// readSGLang reads and checks the sampling parameters. late is why a grammar does not compile, which
// SGLang finds after everything else.
func (p params) readSGLang(s *sampling) (late, err *apiError) {
	if err := p.checkSGLangRanges(); err != nil {
		return nil, err
	}
	*s, err = p.takeSampling(*s, "min_new_tokens", "max_new_tokens", "sampling_seed")
	if err != nil && err.grammar != "" {
		late, err = err, nil
	}

	switch {
	case err != nil:
	case s.maxTokens < 0:
		err = refusal("max_new_tokens must be at least 0, got %d.", s.maxTokens)
	case s.minTokens > s.maxTokens:
		err = refusal("min_new_tokens must be in [0, max_new_tokens(%d)], got %d.", s.maxTokens, s.minTokens)
	}
	s.n = max(s.n, 1)
	return late, err
}

// refuse returns why SGLang does not take the request after it has taken its parameters, nil if it does.
func (req *modelRequest) refuse() *apiError {
	err := req.late
	if req.behavior.NoTokenizer {
		switch {
		case req.limits.minTokens > 0:
			return refusal("min_new_tokens=%d is unavailable when skip_tokenizer_init=True "+
				"(requires tokenizer for eos_token_id).", req.limits.minTokens)
		case err != nil || req.limits.grammar != nil:
			err = refusal("")
			err.grammar = "Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not supported when " +
				"the server is launched with --grammar-backend none"
		}
	}
	if err != nil {
		err.request = req
	}
	return err
}

// inputReserve are the tokens of the context that SGLang's scheduler keeps free of a prompt.
const inputReserve = 6

// inputTooLong is the scheduler's error of a prompt, which comes through only over gRPC: the HTTP server
// refuses one by the context alone.
func inputTooLong(limit, size int) *apiError {
	return refusal("Input length (%d tokens) exceeds the maximum allowed length (%d tokens). "+
		"Use a shorter input or enable --allow-auto-truncate.", size, limit)
}

// refusal is an error of the request in the words of SGLang.
func refusal(format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, message: fmt.Sprintf(format, args...), kind: "invalid_request_error",
	}
}

// checkSGLangRanges refuses in the words of SGLang.
func (p params) checkSGLangRanges() *apiError {
	temperature, topP := 1.0, 1.0
	minP, frequency, presence, repetition := 0.0, 0.0, 0.0, 1.0
	if err := p.getAll(
		field{"temperature", &temperature}, field{"top_p", &topP}, field{"min_p", &minP},
		field{"frequency_penalty", &frequency}, field{"presence_penalty", &presence},
		field{"repetition_penalty", &repetition},
	); err != nil {
		return err
	}

	switch {
	case temperature < 0:
		return refusal("temperature must be a non-negative finite number, got %v.", temperature)
	case topP <= 0 || topP > 1:
		return refusal("top_p must be in (0, 1], got %v.", topP)
	case minP < 0 || minP > 1:
		return refusal("min_p must be in [0, 1], got %v.", minP)
	case frequency < -2 || frequency > 2:
		return refusal("frequency_penalty must be in [-2, 2], got %v.", frequency)
	case presence < -2 || presence > 2:
		return refusal("presence_penalty must be in [-2, 2], got %v.", presence)
	case repetition <= 0 || repetition > 2:
		return refusal("repetition_penalty must be in (0, 2] (1.0 = no penalty), got %v.", repetition)
	}

	for _, name := range p.biases() {
		id, err := strconv.Atoi(name)
		if err != nil {
			return refusal("invalid literal for int() with base 10: '%s'", name)
		}
		if id < 0 || id > lastID {
			return refusal("logit_bias must has keys in [0, %d], got %d.", lastID, id)
		}
	}
	return nil
}

// writeError answers a streaming request with an error in the stream, like SGLang
// does.
func (sglangAPI) writeError(w http.ResponseWriter, err *apiError, stream bool) {
	if err.body != nil {
		writeJSON(w, err.status, err.body)
		return
	}

	message := err.message
	if err.grammar != "" {
		message = err.grammar
	}
	if !stream {
		writeJSON(w, err.status, append(appendQuoted([]byte(`{"error":{"message":`), message), "}}"...))
		return
	}
	o := newWire(w, formEvents, Behavior{})
	if o.begin() == nil && o.event(func(b []byte) []byte { return appendSGLangError(b, err) }) == nil {
		_ = o.done() // the client may have disconnected
	}
}

// appendSGLangError appends the event of a request that is refused. A grammar is compiled later
// than the rest is checked: its refusal ends an answer to a prompt of one token, after a token of any kind.
func appendSGLangError(b []byte, err *apiError) []byte {
	if err.grammar != "" {
		req := *err.request
		req.n, req.prompt = 1, make([]harmony.Token, 1)
		c := &choice{output: []harmony.Token{37165}, finish: "abort", refused: err}
		return sglangAPI{}.begin(nil, &req, []*choice{c}).event(b, c, 0)
	}

	b = append(b, `{"error":{"message":`...)
	b = appendQuoted(b, err.message)
	b = append(b, `,"type":`...)
	b = appendQuoted(b, err.kind)
	b = append(b, `,"code":`...)
	b = strconv.AppendInt(b, int64(err.status), 10)
	return append(b, `,"retryable":false}}`...)
}

// appendSGLangAbort appends the finish reason of an abort. Without a status and a kind they are null.
func appendSGLangAbort(b []byte, message string, status int, kind string) []byte {
	b = append(b, `{"type":"abort","message":`...)
	b = appendQuoted(b, message)
	b = append(b, `,"status_code":`...)
	if status == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(status), 10)
	}
	b = append(b, `,"err_type":`...)
	if kind == "" {
		b = append(b, "null"...)
	} else {
		b = appendQuoted(b, kind)
	}
	return append(b, '}')
}

func (sglangAPI) begin(_ *Sim, req *modelRequest, choices []*choice) reply {
	return &sglangReply{req: req, choices: choices, texts: make([]sglangText, len(choices))}
}

type sglangReply struct {
	req     *modelRequest
	choices []*choice
	texts   []sglangText // by choice
}

// sglangText is the text of a choice so far.
type sglangText struct {
	decoder harmony.Decoder
	all     []byte
}

func (r *sglangReply) event(b []byte, c *choice, from int) []byte {
	t := &r.texts[c.index]
	before := len(t.all)
	r.decode(t, c, from)

	ids, text := c.output[from:], t.all[before:]
	switch {
	// Ids and text are from the beginning unless the server runs with --incremental-streaming-output.
	case r.req.behavior.Cumulative:
		ids, text = c.output, t.all
	// An end without a token repeats the last id.
	case len(ids) == 0 && len(c.output) > 0:
		ids = c.output[len(c.output)-1:]
	}

	b = r.object(b, c, ids, text)
	// SGLang writes the index only where there are several choices.
	if r.req.n > 1 {
		b = append(b, `,"index":`...)
		b = strconv.AppendInt(b, int64(c.index), 10)
	}
	return append(b, '}')
}

func (r *sglangReply) decode(t *sglangText, c *choice, from int) {
	for i, id := range c.output[from:] {
		// The end token is among the ids, and has a text only with no_stop_trim.
		if !r.req.keepsEnd && c.finish == "stop" && from+i == len(c.output)-1 {
			break
		}
		t.all, _ = t.decoder.Append(t.all, id)
	}
	if c.finish != "" {
		t.all = t.decoder.Flush(t.all)
	}
}

// id is the id that the answer has: of several choices each has one of its own.
func (r *sglangReply) id(c *choice) string {
	if r.req.n == 1 {
		return r.req.id
	}
	return fmt.Sprintf("%032x", r.req.seed+uint64(c.index)+1) //nolint:gosec // an index
}

// object appends a response without its closing bracket.
func (r *sglangReply) object(b []byte, c *choice, ids []harmony.Token, text []byte) []byte {
	b = append(b, '{')
	if !r.req.behavior.NoTokenizer {
		b = append(appendQuoted(append(b, `"text":`...), string(text)), ',')
	}
	b = append(b, `"output_ids":`...)
	b = appendIDs(b, ids)

	b = append(b, `,"meta_info":{"id":`...)
	b = appendQuoted(b, r.id(c))
	b = append(b, `,"finish_reason":`...)
	b = appendSGLangFinish(b, c)
	b = append(b, `,"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(len(r.req.prompt)), 10)

	b = append(b, `,"weight_version":"`+weightVersion+`","num_retractions":0,"reasoning_tokens":0`...)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(len(c.output)), 10)
	b = append(b, `,"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(r.req.cached), 10)
	b = append(b, `,"cached_tokens_details":`...)
	if r.req.cached > 0 {
		b = fmt.Appendf(b, `{"device":%d,"host":0}`, r.req.cached)
	} else {
		b = append(b, "null"...)
	}

	b = append(b, `,"dp_rank":null,"storage_prefetch_wait":0.0,"storage_staging_wait":0.0`...)
	b = appendSGLangLogprobs(b, r.req, c, len(c.output)-len(ids))
	if c.finish != "" {
		b = append(b, `,"weight_versions":[{"version":"`+weightVersion+`","start":0,"end":`...)
		b = strconv.AppendInt(b, int64(len(c.output)), 10)
		b = append(b, `}],"e2e_latency":0.25`...)
	}
	return append(b, '}')
}

func appendSGLangFinish(b []byte, c *choice) []byte {
	if c.refused != nil {
		return appendSGLangAbort(b, c.refused.grammar, c.refused.status, "BadRequestError")
	}

	switch c.finish {
	case "":
		return append(b, "null"...)
	case "stop":
		b = append(b, `{"type":"stop","matched":`...)
		b = strconv.AppendUint(b, uint64(c.output[len(c.output)-1]), 10)
	case "length":
		b = append(b, `{"type":"length","length":`...)
		b = strconv.AppendInt(b, int64(len(c.output)), 10)
	default:
		status, message, kind := abortStatus(c.finish), "Aborted", ""
		if c.finish == abortedInQueue {
			message, kind = abortedByID, "BadRequestError"
		}
		return appendSGLangAbort(b, message, status, kind)
	}
	return append(b, '}')
}

func (r *sglangReply) usage(b []byte) []byte { return b }

func (r *sglangReply) single(b []byte) []byte {
	if r.req.n > 1 {
		b = append(b, '[')
	}
	for i, c := range r.choices {
		if i > 0 {
			b = append(b, ',')
		}
		t := &r.texts[i]
		r.decode(t, c, 0)
		b = append(r.object(b, c, c.output, t.all), '}')
	}
	if r.req.n > 1 {
		b = append(b, ']')
	}
	return b
}
