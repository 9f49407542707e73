package engine

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// wholeInterval is the requested number of ids per event when the client waits
// for the complete answer. It reduces the number of events. It is small enough
// to detect stop strings early and to prevent idle timeouts.
const wholeInterval = 64

// object encodes one JSON object.
type object struct{ b []byte }

func newObject(b []byte) object { return object{append(b, '{')} }

func (o *object) end() []byte { return append(o.b, '}') }

func (o *object) name(k string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), k...), '"', ':')
}

func (o *object) integer(k string, n int) {
	o.name(k)
	o.b = strconv.AppendInt(o.b, int64(n), 10)
}

func (o *object) number(k string, x float64) {
	o.name(k)
	o.b = strconv.AppendFloat(o.b, x, 'g', -1, 64)
}

func (o *object) boolean(k string, v bool) {
	o.name(k)
	o.b = strconv.AppendBool(o.b, v)
}

// text writes a string member. It writes nothing for "".
func (o *object) text(k, v string) {
	if v == "" {
		return
	}
	o.name(k)
	o.b = gjson.AppendJSONString(o.b, v)
}

func (o *object) ids(k string, ids []harmony.Token) {
	o.name(k)
	o.b = append(o.b, '[')
	o.b = appendIDList(o.b, ids)
	o.b = append(o.b, ']')
}

// bias writes a map in the order of the ids. It writes nothing for an empty
// map.
func (o *object) bias(k string, bias map[harmony.Token]float64) {
	if len(bias) == 0 {
		return
	}
	o.name(k)
	inner := newObject(o.b)
	for _, id := range slices.Sorted(maps.Keys(bias)) {
		inner.number(strconv.FormatUint(uint64(id), 10), bias[id])
	}
	o.b = inner.end()
}

// sampling writes the parameters whose names the engines have in common. Absent
// parameters get OpenAI's defaults; otherwise engines would use the model's
// generation_config.
func (o *object) sampling(r *Request) {
	o.number("temperature", or(r.Temperature, 1))
	o.number("top_p", or(r.TopP, 1))
	o.integer("top_k", r.topK())
	o.number("min_p", or(r.MinP, 0))
	o.number("frequency_penalty", or(r.FrequencyPenalty, 0))
	o.number("presence_penalty", or(r.PresencePenalty, 0))
	o.number("repetition_penalty", or(r.RepetitionPenalty, 1))
	o.integer("n", max(r.N, 1))
	o.ids("stop_token_ids", stopTokens(r))
	// The engines drop special tokens by default, in which channels and calls are written.
	o.boolean("skip_special_tokens", false)
	o.bias("logit_bias", r.LogitBias)
	if r.Whole {
		o.integer("stream_interval", wholeInterval)
	}
}

// limits writes the limits of output tokens and the seed under the engine's
// names.
func (o *object) limits(r *Request, maxName, minName, seedName string) {
	if r.MaxTokens > 0 {
		o.integer(maxName, r.MaxTokens)
	}
	o.integer(minName, max(r.MinTokens, 0))
	if r.Seed != nil {
		o.integer(seedName, int(*r.Seed))
	}
}

// scheduling writes the cache salt and the priority.
func (o *object) scheduling(r *Request) {
	o.text("cache_salt", r.CacheSalt)
	if r.Priority != nil {
		o.integer("priority", *r.Priority)
	}
}

// request returns a JSON request whose reply is a stream. If id is not "", it
// is sent as a header, for engines that do not take it in the body.
func (o *object) request(path, id string) *HTTPRequest {
	header := []Header{{"content-type", "application/json"}, {"accept", "text/event-stream"}}
	if id != "" {
		header = append(header, Header{"x-request-id", id})
	}
	return &HTTPRequest{Path: path, Header: header, Body: o.end()}
}

// topK returns the engines' value of top_k, where -1 means no limit.
func (r *Request) topK() int {
	// Clients write 0 for no limit too, which SGLang refuses.
	if k := or(r.TopK, -1); k != 0 {
		return k
	}
	return -1
}

func or[T any](v *T, neutral T) T {
	if v == nil {
		return neutral
	}
	return *v
}

// structuralTag returns the constraint as the JSON text of a structural tag, or
// "" if there is none.
func structuralTag(r *Request) string {
	if r.Constraint == nil {
		return ""
	}
	return string(constraint.AppendStructuralTag(nil, r.Constraint))
}

// structuredOutputs writes the constraint as vLLM's HTTP APIs expect it.
func (o *object) structuredOutputs(r *Request) {
	if r.Constraint == nil {
		return
	}
	o.name("structured_outputs")
	inner := newObject(o.b)
	inner.text("structural_tag", structuralTag(r))
	o.b = inner.end()
}

// stopTokens returns Harmony's two stop tokens followed by the request's,
// without duplicates. With a constraint it returns only Harmony's: a grammar
// that contains a stop token, such as <|end|>, fails in the engine. The caller
// stops at the request's stop tokens itself.
func stopTokens(r *Request) []harmony.Token {
	stops := []harmony.Token{harmony.TokenReturn, harmony.TokenCall}
	if r.Constraint != nil {
		return stops
	}
	for _, t := range r.StopTokens {
		if !slices.Contains(stops, t) {
			stops = append(stops, t)
		}
	}
	return stops
}

// unsupported returns those of params that r sets. Dialects use it for Ignores.
func unsupported(r *Request, params ...string) []string {
	set := map[string]bool{"seed": r.Seed != nil, "cache_salt": r.CacheSalt != "", "priority": r.Priority != nil}
	var names []string
	for _, p := range params {
		if set[p] {
			names = append(names, p)
		}
	}
	return names
}

// validate returns an error for requests that no engine supports.
func validate(r *Request) *apierror.Error {
	switch {
	case len(r.Prompt) == 0:
		return apierror.Invalid("", "The prompt is empty.")
	case r.MaxTokens < 1:
		return apierror.Invalid("max_tokens", "max_tokens must be at least 1.")
	case r.MinTokens > 0 && r.Constraint != nil:
		return apierror.Invalid("min_tokens",
			"min_tokens and ignore_eos cannot be combined with tool_choice, strict tools or an output format, "+
				"because these decide where the reply ends. Leave min_tokens and ignore_eos out.")
	case r.TopLogprobs < 0 || r.TopLogprobs > MaxTopLogprobs:
		return apierror.Invalid("top_logprobs", "top_logprobs must be from 0 to %d.", MaxTopLogprobs)
	case r.MinTokens > r.MaxTokens:
		return apierror.Invalid("min_tokens", "min_tokens must not be greater than max_tokens.")
	}

	// JSON has no such numbers: an object with one could not be encoded.
	for _, f := range []struct {
		param string
		value *float64
	}{
		{"temperature", r.Temperature},
		{"top_p", r.TopP},
		{"min_p", r.MinP},
		{"frequency_penalty", r.FrequencyPenalty},
		{"presence_penalty", r.PresencePenalty},
		{"repetition_penalty", r.RepetitionPenalty},
	} {
		if f.value != nil && !finite(*f.value) {
			return apierror.Invalid(f.param, "%s must be a finite number.", f.param)
		}
	}
	for _, bias := range r.LogitBias {
		if !finite(bias) {
			return apierror.Invalid("logit_bias", "The values of logit_bias must be finite numbers.")
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// newBody returns an object with enough capacity for r's prompt.
func newBody(r *Request) object {
	return newObject(make([]byte, 0, idBytes*len(r.Prompt)+1024))
}
