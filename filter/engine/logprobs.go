package engine

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// MaxTopLogprobs is the highest value of a Request's TopLogprobs: the limit of
// OpenAI's API and the default limit of vLLM (--max-logprobs).
const MaxTopLogprobs = 20

// leastLogprob is sent for a probability of 0, as OpenAI does.
const leastLogprob = -9999

// Logprob is the log probability of an output token.
type Logprob struct {
	Value float64 // natural logarithm of the probability, at least -9999
	// The most likely tokens at this position, most likely first, at most the request's TopLogprobs
	Top []TokenLogprob
}

// TokenLogprob is a token with its log probability (natural logarithm).
type TokenLogprob struct {
	Token   harmony.Token
	Logprob float64
}

// logprobs collects the log probabilities of one message at a time. Engines
// send the tokens, their values and the most likely tokens as parallel lists or
// as one list.
type logprobs struct {
	requested bool
	limit     int // most tokens in Logprob.Top

	// Of the message being read:
	tokens []harmony.Token
	values []float64
	bounds []int // start of the first position's tokens in top, then the end of each position's tokens

	// Of one call of Feed:
	list []Logprob
	top  []TokenLogprob
}

func newLogprobs(r *Request) logprobs { return logprobs{requested: r.Logprobs, limit: r.TopLogprobs} }

// reuse reuses the buffers of the last call of Feed.
func (l *logprobs) reuse() { l.list, l.top = l.list[:0], l.top[:0] }

// next starts to read a message.
func (l *logprobs) next() {
	l.tokens, l.values, l.bounds = l.tokens[:0], l.values[:0], append(l.bounds[:0], len(l.top))
}

func (l *logprobs) value(v float64) { l.values = append(l.values, clamped(v)) }

// addTop adds a token to the most likely tokens of the current position.
func (l *logprobs) addTop(token harmony.Token, v float64) {
	// Engines send them in different orders. OpenAI has the most likely first.
	v = clamped(v)
	begin, at := l.bounds[len(l.bounds)-1], len(l.top)
	for at > begin && l.top[at-1].Logprob < v {
		at--
	}
	if at-begin < l.limit {
		l.top = slices.Insert(l.top, at, TokenLogprob{token, v})
		l.top = l.top[:min(len(l.top), begin+l.limit)]
	}
}

// endPosition ends the list of the most likely tokens of the current position.
func (l *logprobs) endPosition() { l.bounds = append(l.bounds, len(l.top)) }

// clamped returns v limited to the range from leastLogprob to 0, which also
// makes it valid in JSON.
func clamped(v float64) float64 {
	if math.IsNaN(v) || v < leastLogprob {
		return leastLogprob
	}
	return min(v, 0) + 0 // + 0 turns -0 into 0
}

// forTokens returns the log probabilities of tokens. The message may contain
// those of earlier tokens too, so the last ones are used.
func (l *logprobs) forTokens(tokens []harmony.Token) ([]Logprob, *apierror.Error) {
	if !l.requested || len(tokens) == 0 {
		return nil, nil
	}

	// The ids are compared: values of other tokens would be worse than an error.
	end := len(l.tokens)
	skip := end - len(tokens)
	if skip < 0 || len(l.values) < end || !slices.Equal(l.tokens[skip:], tokens) {
		return nil, unreadable("it lacks the requested log probabilities")
	}
	from := len(l.list)
	for i := skip; i < end; i++ {
		l.list = append(l.list, Logprob{Value: l.values[i], Top: l.topAt(i)})
	}
	return l.list[from:len(l.list):len(l.list)], nil
}

// topAt returns the most likely tokens of a position, or nil if the engine sent
// none.
func (l *logprobs) topAt(position int) []TokenLogprob {
	if position+1 >= len(l.bounds) {
		return nil
	}
	begin, end := l.bounds[position], l.bounds[position+1]
	return l.top[begin:end:end]
}

// atLeastOne returns the number of most likely tokens to request from engines
// for which 0 means no log probabilities at all.
func (r *Request) atLeastOne() int { return max(r.TopLogprobs, 1) }

// withOwn returns the number of most likely tokens to request from engines that
// count the output token among them.
func (r *Request) withOwn() int { return min(r.TopLogprobs+1, MaxTopLogprobs) }

// noToken is an id outside the range of the vocabulary.
const noToken harmony.Token = math.MaxUint32

// tokenOf parses an id, which vLLM's completions API writes as "token_id:5".
func tokenOf(raw []byte) harmony.Token {
	raw = bytes.TrimPrefix(bytes.Trim(raw, `"`), []byte("token_id:"))
	id, err := strconv.ParseUint(string(raw), 10, 32)
	if err != nil {
		return noToken
	}
	return harmony.Token(id)
}

// readColumns reads an OutputLogProbs of SGLang's or vLLM's service: values in
// field 1, ids in field 2, and in field 3 a message of the same form per
// position with the most likely tokens. It returns false if b is not in this
// format.
func (l *logprobs) readColumns(b []byte) bool {
	return readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) (ok bool) {
		switch number {
		case 1:
			ok = eachFloat(kind, value, l.value)
		case 2:
			l.tokens, ok = appendVarints(l.tokens, kind, value)
		case 3:
			inner, n := protowire.ConsumeBytes(value)
			ok = kind == protowire.BytesType && n >= 0 && l.readLikeliest(inner)
			l.endPosition()
		default:
			ok = true
		}
		return ok
	})
}

// readLikeliest reads the most likely tokens of one position.
func (l *logprobs) readLikeliest(b []byte) bool {
	var tokens []harmony.Token
	var values []float64
	ok := readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) (ok bool) {
		switch number {
		case 1:
			ok = eachFloat(kind, value, func(v float64) { values = append(values, v) })
		case 2:
			tokens, ok = appendVarints(tokens, kind, value)
		default:
			ok = true
		}
		return ok
	})
	for i := range min(len(tokens), len(values)) {
		l.addTop(tokens[i], values[i])
	}
	return ok
}
