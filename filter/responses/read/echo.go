package read

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
)

// echo is what a response object repeats of its request.
type echo struct {
	instructions    *string
	tools           toolset.Echo
	format          []byte // of the text, JSON
	maxToolCalls    int
	maxOutputTokens int
	truncation      string
	reasoning       reasoningEcho
	verbosity       string
	sampling        samplingEcho
	metadata        []byte
	safety          *string
	cacheKey        *string
	cacheOptions    []byte // the member of the response object, with a comma before it
	background      bool
}

// samplingEcho is what it repeats of the sampling. nil is the default.
type samplingEcho struct {
	temperature, topP                 *float64
	frequencyPenalty, presencePenalty *float64
	topLogprobs                       int
}

// newEcho has the defaults, for a request that has no fields.
func newEcho() echo {
	return echo{
		tools:      toolset.NewEcho(),
		format:     []byte(`{"type":"text"}`),
		truncation: "disabled",
		metadata:   []byte("{}"),
	}
}

// append appends the members of a response object.
func (e *echo) append(dst []byte) []byte {
	dst = appendText(append(dst, `"instructions":`...), e.instructions)
	dst = append(append(append(dst, `,"tools":[`...), e.tools.List...), ']')
	dst = append(append(dst, `,"tool_choice":`...), e.tools.Choice...)
	dst = strconv.AppendBool(append(dst, `,"parallel_tool_calls":`...), e.tools.Parallel)
	dst = appendCount(append(dst, `,"max_tool_calls":`...), e.maxToolCalls)
	dst = appendCount(append(dst, `,"max_output_tokens":`...), e.maxOutputTokens)
	dst = jsontext.AppendString(append(dst, `,"truncation":`...), e.truncation)
	dst = e.reasoning.append(append(dst, `,"reasoning":`...))
	dst = append(append(dst, `,"text":{"format":`...), e.format...)
	if e.verbosity != "" {
		dst = jsontext.AppendString(append(dst, `,"verbosity":`...), e.verbosity)
	}

	dst = appendNumber(append(dst, `},"temperature":`...), e.sampling.temperature, 1)
	dst = appendNumber(append(dst, `,"top_p":`...), e.sampling.topP, 1)
	dst = appendNumber(append(dst, `,"frequency_penalty":`...), e.sampling.frequencyPenalty, 0)
	dst = appendNumber(append(dst, `,"presence_penalty":`...), e.sampling.presencePenalty, 0)
	dst = strconv.AppendInt(append(dst, `,"top_logprobs":`...), int64(e.sampling.topLogprobs), 10)
	dst = append(append(dst, `,"metadata":`...), e.metadata...)
	dst = appendText(append(dst, `,"safety_identifier":`...), e.safety)
	dst = appendText(append(dst, `,"prompt_cache_key":`...), e.cacheKey)
	dst = append(dst, e.cacheOptions...)
	dst = append(dst, `,"service_tier":"default","background":`...)
	return strconv.AppendBool(dst, e.background)
}

func appendText(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, `null`...)
	}
	return jsontext.AppendString(dst, *s)
}

// appendCount appends a number of things, null if it is 0.
func appendCount(dst []byte, n int) []byte {
	if n == 0 {
		return append(dst, `null`...)
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

func appendNumber(dst []byte, n *float64, absent float64) []byte {
	if n != nil {
		absent = *n
	}
	return strconv.AppendFloat(dst, absent, 'g', -1, 64)
}
