package write

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// turnUsage is the tokens of one model call. They are the filter's own counts;
// only how much of the prompt was cached is the engine's.
type turnUsage struct {
	// input: of the prompt.
	input int
	// cached: of these, from the engine's prefix cache; engine.Unknown until it reports that.
	cached int
	output int
	// reasoning: of these, content of the chain of thought.
	reasoning int
}

// usage is the model calls of a response, in order. Each but the first extends the
// one before it: its prompt is the other's with its output and the outputs of the
// tools it called.
//
// Where several requests make one response, the calls of those before this one are
// listed too, but not counted in the totals, which are of this request.
type usage struct {
	turns   []turnUsage
	earlier int // how many of them are of requests before this one
}

// calls is how many model calls the request has made.
func (u *usage) calls() int { return len(u.turns) - u.earlier }

// total is the tokens of the request's model calls together. A prompt counts
// as often as it was sent.
func (u *usage) total() turnUsage {
	// A call whose engine does not report cached tokens adds none; only if all of them are silent is
	// the sum unknown.
	all := turnUsage{cached: engine.Unknown}
	for _, t := range u.turns[u.earlier:] {
		all.input += t.input
		all.output += t.output
		all.reasoning += t.reasoning
		if t.cached != engine.Unknown {
			all.cached = max(all.cached, 0) + t.cached
		}
	}
	return all
}

// toolOutput is the tokens by which the prompt of the i-th model call is longer than
// the prompt and the output of the one before: what the tools returned. It is negative
// where the conversation got shorter.
func (u *usage) toolOutput(i int) int {
	if i == 0 {
		return 0
	}
	before := u.turns[i-1]
	return u.turns[i].input - before.input - before.output
}

// append appends the usage of a response object; perTurn lists the model calls
// too.
func (u *usage) append(dst []byte, perTurn bool) []byte {
	all := u.total()
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(all.input), 10)
	dst = strconv.AppendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), int64(max(all.cached, 0)), 10)
	dst = append(dst, `,"cache_write_tokens":0`...)
	if perTurn {
		dst = u.appendTurns(append(dst, `,"input_tokens_per_turn":`...), func(i int) int { return u.turns[i].input })
		dst = u.appendTurns(append(dst, `,"cached_tokens_per_turn":`...), func(i int) int { return u.turns[i].cached })
	}

	dst = strconv.AppendInt(append(dst, `},"output_tokens":`...), int64(all.output), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"reasoning_tokens":`...), int64(all.reasoning), 10)
	if perTurn {
		tools := 0
		for i := u.earlier; i < len(u.turns); i++ {
			tools += max(u.toolOutput(i), 0)
		}
		dst = strconv.AppendInt(append(dst, `,"tool_output_tokens":`...), int64(tools), 10)
		dst = u.appendTurns(append(dst, `,"output_tokens_per_turn":`...), func(i int) int { return u.turns[i].output })
		dst = u.appendTurns(append(dst, `,"tool_output_tokens_per_turn":`...), u.toolOutput)
	}

	dst = strconv.AppendInt(append(dst, `},"total_tokens":`...), int64(all.input+all.output), 10)

	return append(dst, '}')
}

// appendTurns appends a count of every model call; one that is not known, or
// negative, is 0.
func (u *usage) appendTurns(dst []byte, count func(i int) int) []byte {
	dst = append(dst, '[')
	for i := range u.turns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(max(count(i), 0)), 10)
	}
	return append(dst, ']')
}

// resumedUsage is the usage that goes on from that of a response object, where a request
// resumes a response under the same id. The model calls of an object that does not
// list them count as one.
func resumedUsage(object []byte) usage {
	stored := gjson.GetBytes(object, "usage")
	in, out := stored.Get("input_tokens_details"), stored.Get("output_tokens_details")
	inputs, cached, outputs := in.Get("input_tokens_per_turn").Array(), in.Get("cached_tokens_per_turn").Array(),
		out.Get("output_tokens_per_turn").Array()
	// Array of a number is a list of that number: the totals stand for one call.
	if len(inputs) == 0 {
		inputs, cached, outputs = stored.Get("input_tokens").Array(), in.Get("cached_tokens").Array(),
			stored.Get("output_tokens").Array()
	}

	// The lists count as far as all of them go: an object may have been written without one.
	n := min(len(inputs), len(cached), len(outputs))
	u := usage{turns: make([]turnUsage, n), earlier: n}
	for i := range u.turns {
		u.turns[i] = turnUsage{input: int(inputs[i].Int()), cached: int(cached[i].Int()), output: int(outputs[i].Int())}
	}

	return u
}
