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

// MaxTopLogprobs is the most that a Request's TopLogprobs may be: what OpenAI
// allows, and vLLM unless it is told otherwise (--max-logprobs).
const MaxTopLogprobs = 20

// leastLogprob stands for the logarithm of no probability, as with OpenAI.
const leastLogprob = -9999

// Logprob is how likely a token of the output was.
type Logprob struct {
	Value float64        // natural logarithm of its probability, -9999 at the least
	Top   []TokenLogprob // the likeliest tokens at its place, as many as the request's TopLogprobs or fewer, likeliest first
}

// TokenLogprob is how likely a token was that need not be of the output.
type TokenLogprob struct {
	Token   harmony.Token
	Logprob float64
}

// logprobs reads the log probabilities of one message at a time. Engines tell
// the tokens, their values and the likeliest tokens in lists of their own, or
// together; what is at the same place in each belongs together.
type logprobs struct {
	asked bool
	most  int // of a place's Top

	// Of the message being read:
	tokens []harmony.Token
	values []float64
	bounds []int // where in top the first place's begin, and where each place's end

	// Of one Feed:
	list []Logprob
	top  []TokenLogprob
}

func newLogprobs(r *Request) logprobs { return logprobs{asked: r.Logprobs, most: r.TopLogprobs} }

// reuse takes the memory of the last Feed back.
func (l *logprobs) reuse() { l.list, l.top = l.list[:0], l.top[:0] }

// next begins to read a message.
func (l *logprobs) next() {
	l.tokens, l.values, l.bounds = l.tokens[:0], l.values[:0], append(l.bounds[:0], len(l.top))
}

func (l *logprobs) value(v float64) { l.values = append(l.values, clamped(v)) }

// likely adds a token to the likeliest of the place being read.
func (l *logprobs) likely(token harmony.Token, v float64) {
	v = clamped(v)
	begin, at := l.bounds[len(l.bounds)-1], len(l.top)
	for at > begin && l.top[at-1].Logprob < v {
		at--
	}
	if at-begin < l.most {
		l.top = slices.Insert(l.top, at, TokenLogprob{token, v})
		l.top = l.top[:min(len(l.top), begin+l.most)]
	}
}

// place ends the likeliest tokens of a place.
func (l *logprobs) place() { l.bounds = append(l.bounds, len(l.top)) }

// clamped is a value that JSON can have.
func clamped(v float64) float64 {
	if math.IsNaN(v) || v < leastLogprob {
		return leastLogprob
	}
	return min(v, 0) + 0 // never -0
}

// of is the log probabilities of tokens, which the message tells last: it may
// repeat those of earlier ones, whether or not it repeats their ids.
func (l *logprobs) of(tokens []harmony.Token) ([]Logprob, *apierror.Error) {
	if !l.asked || len(tokens) == 0 {
		return nil, nil
	}
	end := len(l.tokens)
	skip := end - len(tokens)
	if skip < 0 || len(l.values) < end || !slices.Equal(l.tokens[skip:], tokens) {
		return nil, unreadable("it has not the log probabilities of its tokens, which were asked for")
	}
	from := len(l.list)
	for i := skip; i < end; i++ {
		l.list = append(l.list, Logprob{Value: l.values[i], Top: l.topAt(i)})
	}
	return l.list[from:len(l.list):len(l.list)], nil
}

// topAt is empty where nothing has been told.
func (l *logprobs) topAt(place int) []TokenLogprob {
	if place+1 >= len(l.bounds) {
		return nil
	}
	begin, end := l.bounds[place], l.bounds[place+1]
	return l.top[begin:end:end]
}

// atLeastOne is how many of the likeliest tokens an engine is asked for that
// understands none as no log probabilities at all.
func (r *Request) atLeastOne() int { return max(r.TopLogprobs, 1) }

// withOwn is how many an engine is asked for that counts the output's own token
// among them, wherever it ranks.
func (r *Request) withOwn() int { return min(r.TopLogprobs+1, MaxTopLogprobs) }

// noToken is an id that no engine has.
const noToken harmony.Token = math.MaxUint32

// tokenOf reads an id, which vLLM's completions spell "token_id:5".
func tokenOf(raw []byte) harmony.Token {
	raw = bytes.TrimPrefix(bytes.Trim(raw, `"`), []byte("token_id:"))
	id, err := strconv.ParseUint(string(raw), 10, 32)
	if err != nil {
		return noToken
	}
	return harmony.Token(id)
}

// readColumns reads an OutputLogProbs, of SGLang's service as of vLLM's: values
// in field 1, ids in 2, and in 3 for every place a message with the same of its
// likeliest tokens. It is false for what is none.
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
			l.place()
		default:
			ok = true
		}
		return ok
	})
}

// readLikeliest reads the likeliest tokens of one place.
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
		l.likely(tokens[i], values[i])
	}
	return ok
}
