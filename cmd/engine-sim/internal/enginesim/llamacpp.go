package enginesim

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// llamacppAPI is POST /completion of the llama.cpp server. Like the real one it
// loses ids in streams: an event has one token, and is sent only at the end of a
// character.
type llamacppAPI struct{}

func (llamacppAPI) read(s *Sim, header http.Header, body map[string]json.RawMessage) (*modelRequest, *apiError) {
	p := params(body)
	req := &modelRequest{id: header.Get("x-request-id"), model: s.options.Models[0], form: formOpenEvents}
	if req.id == "" {
		req.id = s.nextID()
	}

	lastN := 64
	if err := p.getAll(
		field{"stream", &req.stream}, field{"return_tokens", &req.returnIDs}, field{"repeat_last_n", &lastN},
	); err != nil {
		return nil, llamacppError(err)
	}
	if lastN < 0 { // servers of 2026 do not accept -1 for the whole context
		return nil, &apiError{
			status: http.StatusBadRequest, message: fmt.Sprintf(
				"Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647, but got %d", lastN),
			kind: "invalid_request_error",
		}
	}

	var err *apiError
	if !p.has("prompt") {
		return req, &apiError{
			status: http.StatusBadRequest, message: "[json.exception.out_of_range.403] key 'prompt' not found",
			kind: "invalid_request_error",
		}
	}
	if req.prompt, err = p.takePrompt("prompt"); err != nil {
		return req, &apiError{
			status: http.StatusBadRequest, message: "Prompt contains invalid tokens", kind: "invalid_request_error",
		}
	}

	limit := s.options.ContextLength
	if len(req.prompt) >= limit {
		return req, &apiError{status: http.StatusBadRequest, message: fmt.Sprintf(
			"request (%d tokens) exceeds the available context size (%d tokens), try increasing it",
			len(req.prompt), limit), kind: exceedsContext, prompt: len(req.prompt), context: limit}
	}

	// Below 0 is as cold as 0.
	defaults := sampling{temperature: 0.8, coldest: math.Inf(-1), topP: 0.95, n: 1, maxTokens: limit}
	sampling, err := p.readSampling(defaults, "", "n_predict", "seed")
	if err != nil {
		return req, llamacppError(err)
	}

	sampling.stops = nil // the API has no stop ids
	if sampling.ignoreEOS {
		// The server forbids the end tokens by their bias; it does not write on behind them.
		sampling.ignoreEOS, sampling.minTokens = false, sampling.maxTokens
	}

	req.n, req.seed, req.interval = 1, uint64(sampling.seed), 1
	req.limits = sampling.limits(limit - len(req.prompt))
	return req, nil
}

// llamacppError converts an error to the form of llama.cpp.
func llamacppError(err *apiError) *apiError {
	message := err.message
	if name, wrongType := strings.CutPrefix(err.param, "body."); wrongType {
		message = "Field '" + name + "': [json.exception.type_error.302] type must be number, but is string"
	}
	return &apiError{status: err.status, message: message, kind: "invalid_request_error"}
}

// exceedsContext is the type of the error of a prompt that is too long.
const exceedsContext = "exceed_context_size_error"

func (llamacppAPI) writeError(w http.ResponseWriter, err *apiError, _ bool) {
	kind := err.kind
	if kind == "Bad Request" { // what is no JSON
		kind = "invalid_request_error"
	}
	b := fmt.Appendf(nil, `{"error":{"code":%d,"message":%s,"type":%s`, err.status, quote(err.message), quote(kind))
	if kind == exceedsContext {
		b = fmt.Appendf(b, `,"n_prompt_tokens":%d,"n_ctx":%d`, err.prompt, err.context)
	}
	writeLlamacpp(w, err.status, append(b, "}}"...))
}

func (llamacppAPI) begin(_ *Sim, req *modelRequest, choices []*choice) reply {
	return &llamacppReply{req: req, choice: choices[0]}
}

type llamacppReply struct {
	req     *modelRequest
	choice  *choice
	pending []byte // text that has not been sent
}

// event returns nothing within a character.
func (r *llamacppReply) event(b []byte, c *choice, from int) []byte {
	for i, id := range c.output[from:] {
		if c.finish == "stop" && from+i == len(c.output)-1 {
			break // the end token has no text
		}
		r.pending = appendRaw(r.pending, id)
	}

	if !endsAtCharacter(r.pending) || len(c.output) == from {
		return b
	}

	content := strings.ToValidUTF8(string(r.pending), "\ufffd")
	r.pending = r.pending[:0]

	// The event has the id of the last token only: the ones before it, which ended inside the character,
	// are lost. A filter must be able to work with that.
	b = append(b, `{"index":0,"content":`...)
	b = appendQuoted(b, content)
	// Events have it whether return_tokens asks for it or not.
	b = append(b, `,"tokens":`...)
	b = appendIDs(b, c.output[len(c.output)-1:])
	return fmt.Appendf(b, `,"stop":false,"id_slot":-1,"tokens_predicted":%d,"tokens_evaluated":%d}`,
		len(c.output), len(r.req.prompt))
}

// appendRaw appends the bytes of a token, which may be part of a character.
func appendRaw(b []byte, id harmony.Token) []byte {
	if name, ok := harmony.SpecialName(id); ok {
		return append(b, name...)
	}
	raw, err := harmony.AppendDecode(b, []harmony.Token{id})
	if err != nil {
		return b
	}
	return raw
}

// endsAtCharacter reports whether p does not end within a character.
func endsAtCharacter(p []byte) bool {
	// A character has at most four bytes, so its first byte is among the last three or it is complete.
	for i := 1; i <= min(len(p), utf8.UTFMax-1); i++ {
		if tail := p[len(p)-i:]; utf8.RuneStart(tail[0]) {
			return utf8.FullRune(tail)
		}
	}
	return true
}

// last returns the event that ends the stream.
func (r *llamacppReply) last(b []byte, c *choice) []byte {
	return r.object(b, c, "", nil)
}

func (r *llamacppReply) object(b []byte, c *choice, content string, ids []harmony.Token) []byte {
	reason := map[string]string{"stop": "eos", "length": "limit"}[c.finish]
	if reason == "" {
		reason = "none"
	}

	b = append(b, `{"index":0,"content":`...)
	b = appendQuoted(b, content)
	b = append(b, `,"tokens":`...)
	b = appendIDs(b, ids)
	b = append(b, `,"id_slot":1,"stop":true,"model":`...)
	b = appendQuoted(b, r.req.model)
	b = append(b, `,"tokens_predicted":`...)
	b = strconv.AppendInt(b, int64(len(c.output)), 10)
	b = fmt.Appendf(b, `,"tokens_evaluated":%d,"generation_settings":{"n_predict":%d,"stream":%t},"prompt":`,
		len(r.req.prompt), r.req.limits.maxTokens, r.req.stream)
	// The server repeats the whole prompt, however long it is.
	b = appendQuoted(b, show(r.req.prompt))
	return fmt.Appendf(b, `,"has_new_line":false,"truncated":false,"stop_type":%q,"stopping_word":"",`+
		`"tokens_cached":%d,"timings":{"cache_n":%d,"prompt_n":%d,"predicted_n":%d}}`,
		reason, len(r.req.prompt)+len(c.output),
		r.req.cached, len(r.req.prompt)-r.req.cached, len(c.output))
}

func (r *llamacppReply) usage(b []byte) []byte { return b }

func (r *llamacppReply) single(b []byte) []byte {
	return r.object(b, r.choice, show(r.choice.output), r.choice.output)
}
