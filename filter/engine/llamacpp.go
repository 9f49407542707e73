package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// llamacpp is the llama.cpp server's API POST /completion, with token ids as
// input and output.
type llamacpp struct{ httpErrors }

func (llamacpp) Kind() string { return "llamacpp" }

// Traits: the server announces Keep-Alive but closes the connection after a stream.
func (llamacpp) Traits() Traits { return Traits{ClosesConnections: true} }

func (llamacpp) Ignores(r *Request) []string { return unsupported(r, "cache_salt", "priority") }

// Encode returns a completion request. samplers is the complete chain, so that
// samplers enabled by the server's flags are not used. The API has no stop ids:
// the end-of-generation tokens of the model file stop the engine, and the
// decoder stops at the other stop tokens.
func (llamacpp) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := validate(r); err != nil {
		return nil, err
	}
	if r.N > 1 {
		return nil, apierror.Invalid("n", "This model's engine returns one choice per request. Set n to 1.")
	}
	if r.MinTokens > 0 && r.MinTokens < r.MaxTokens {
		return nil, apierror.Invalid("min_tokens",
			"This model's engine can forbid the end of an output up to the limit of its tokens only. Leave "+
				"min_tokens out, or set it to that limit.")
	}
	if r.Logprobs {
		return nil, apierror.Invalid("logprobs",
			"logprobs are not supported for Harmony models on this model's engine. Leave logprobs out, or "+
				"message.output_text.logprobs out of include.")
	}
	if r.Constraint != nil {
		return nil, apierror.Invalid("",
			"This model's engine does not support grammars. Use a model on another engine.")
	}

	// The server's flags set defaults for each of these: all are sent.
	o := newBody(r)
	o.ids("prompt", r.Prompt)
	o.integer("n_predict", r.MaxTokens)
	o.name("samplers")
	o.b = append(o.b, `["penalties","top_k","top_p","min_p","temperature"]`...)
	o.number("temperature", or(r.Temperature, 1))
	o.number("dynatemp_range", 0)
	o.integer("mirostat", 0)
	o.number("top_p", or(r.TopP, 1))
	o.integer("top_k", max(or(r.TopK, 0), 0))
	o.number("min_p", or(r.MinP, 0))
	o.number("frequency_penalty", or(r.FrequencyPenalty, 0))
	o.number("presence_penalty", or(r.PresencePenalty, 0))
	o.number("repeat_penalty", or(r.RepetitionPenalty, 1))
	// All tokens count. Newer servers do not accept -1 for that.
	o.integer("repeat_last_n", len(r.Prompt)+r.MaxTokens)
	o.integer("seed", llamacppSeed(r.Seed))

	if len(r.LogitBias) > 0 {
		o.name("logit_bias")
		o.b = appendPairs(o.b, r.LogitBias)
	}
	o.name("stop")
	o.b = append(o.b, "[]"...)
	// This forbids all tokens that end a generation.
	o.boolean("ignore_eos", r.MinTokens > 0)
	// Older servers have false as the default, and compute each turn of a conversation from its beginning.
	o.boolean("cache_prompt", true)
	o.boolean("return_tokens", true)
	o.boolean("stream", true)

	return o.request("/completion", r.ID.String()), nil
}

// llamacppSeed returns a seed of 31 bits, or -1 for a random one.
func llamacppSeed(seed *int64) int {
	if seed == nil {
		return -1
	}
	return int(*seed & 0x7fffffff)
}

// appendPairs appends a map in the format of logit_bias: [[id,bias],…].
func appendPairs(b []byte, bias map[harmony.Token]float64) []byte {
	b = append(b, '[')
	for i, id := range slices.Sorted(maps.Keys(bias)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendUint(b, uint64(id), 10)
		b = append(b, ',')
		b = strconv.AppendFloat(b, bias[id], 'g', -1, 64)
		b = append(b, ']')
	}
	return append(b, ']')
}

func (llamacpp) NewDecoder(r *Request) Decoder {
	d := &llamacppDecoder{stream: newStream(r), stops: stopTokens(r)}
	d.read = d.event
	return d
}

// llamacppDecoder decodes events of the form
//
//	{"content":"…", "tokens":[…], "stop":false, "tokens_predicted":1, …}
//
// and a last event without tokens that contains the reason of the end. If a
// character consists of several tokens, its event contains only the last of
// their ids. Such an event counts more tokens than it contains, and its text is
// encoded again. There is no [DONE].
type llamacppDecoder struct {
	stream
	stops     []harmony.Token
	predicted int  // number of tokens so far, as counted by the engine
	lost      bool // an event did not contain all of its ids
	usage     Usage
}

// Advice reports that some ids are not those that the model generated.
func (d *llamacppDecoder) Advice() string {
	if d.lost {
		return "llama.cpp omits token ids of characters that consist of several tokens: the text is complete, " +
			"the ids are encoded from it again"
	}
	return ""
}

// llamacppEvent is a decoded event.
type llamacppEvent struct {
	content   []byte // as JSON
	tokens    []byte // as JSON
	predicted int
	stop      bool
	reason    []byte // as JSON
	cached    int
}

func (d *llamacppDecoder) event(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	e := llamacppEvent{predicted: Unknown, cached: Unknown}
	s := scanner{b: data}
	if s.enter('{') {
		for s.more('}') {
			switch string(s.key()) {
			case "content":
				e.content = s.raw()
			case "tokens":
				e.tokens = s.raw()
			case "tokens_predicted":
				e.predicted = s.count()
			case "stop":
				e.stop = string(s.raw()) == "true"
			case "stop_type":
				e.reason = s.raw()
			case "timings":
				s.member("cache_n", func() { e.cached = s.count() })
			case "error":
				return chunks, eventError(data)
			default:
				s.skip()
			}
		}
	}

	if !s.whole() || len(e.tokens) == 0 || e.tokens[0] != '[' || e.predicted == Unknown {
		return chunks, unreadable("an event is not llama.cpp's, or its server does not know return_tokens")
	}

	c, err := d.chunk(&e)
	if err != nil {
		return chunks, err
	}
	if e.stop {
		d.usage.CachedTokens = e.cached
		c.Usage = &d.usage
	}
	return appendChunk(chunks, &c), nil
}

// chunk returns the chunk of an event. Tokens after a stop token are dropped.
func (d *llamacppDecoder) chunk(e *llamacppEvent) (Chunk, *apierror.Error) {
	// The server goes on after a stop token that it does not know.
	if d.finished[0] {
		return Chunk{}, nil
	}

	ids, err := d.parseIDs(e.tokens)
	if err != nil {
		return Chunk{}, err
	}

	// The server holds back the tokens of a character until it is whole, and then sends its text
	// with the id of the last one only.
	if len(e.content) > len(`""`) {
		switch fresh := e.predicted - d.predicted; {
		case fresh > len(ids):
			d.lost = true
			ids = d.encoded(text(e.content), ids)
		case len(ids) == 0:
			return Chunk{}, unreadable("an event has text but no tokens")
		}
	}
	d.predicted = e.predicted

	// The server does not know the other stop tokens, and goes on after them.
	c := Chunk{Tokens: ids}
	if i := slices.IndexFunc(ids, d.stopsAt); i >= 0 {
		c.Tokens, c.Finish = ids[:i+1], FinishStop
	} else if e.stop {
		c.Finish = llamacppFinish(e.reason)
	}
	if c.Finish != FinishNone {
		d.finish(0)
	}
	return c, nil
}

func (d *llamacppDecoder) stopsAt(id harmony.Token) bool { return slices.Contains(d.stops, id) }

// encoded returns the ids of an event's text. It is used if the event contains
// only some of the ids, given. A special token ends a character, so only the
// last of given can be one; any other text that spells a special token is
// encoded as ordinary text.
func (d *llamacppDecoder) encoded(content string, given []harmony.Token) []harmony.Token {
	var last []harmony.Token
	if n := len(given); n > 0 {
		if name, special := harmony.SpecialName(given[n-1]); special {
			content, last = strings.TrimSuffix(content, name), given[n-1:]
		}
	}
	from := len(d.ids)
	d.ids = append(harmony.AppendEncode(d.ids, content), last...)
	return d.ids[from:len(d.ids):len(d.ids)]
}

// llamacppFinish parses "eos", "word", "limit" and "none".
func llamacppFinish(raw []byte) Finish {
	switch string(raw) {
	case `"limit"`:
		return FinishLength
	case `"eos"`, `"word"`:
		return FinishStop
	}
	return FinishAbort
}
