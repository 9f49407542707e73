package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// llamacpp is the llama.cpp server's POST /completion with token ids in and
// out.
type llamacpp struct{ httpErrors }

func (llamacpp) Kind() string { return "llamacpp" }

// closesConnections marks that the server says Keep-Alive and closes the
// connection of a stream all the same, with its last byte.
func (llamacpp) closesConnections() {}

func (llamacpp) Constrains() bool { return false }

func (llamacpp) Ignores(r *Request) []string { return unsent(r, "cache_salt", "priority") }

// Encode writes a completion request. The list of samplers is the whole chain,
// so that none that the server's flags add takes part. Stop ids cannot be sent:
// the model file's own end-of-generation tokens stop it, and the decoder stops
// at those that they miss.
func (llamacpp) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := refuse(r); err != nil {
		return nil, err
	}
	if r.N > 1 {
		return nil, apierror.Invalid("n", "This model's engine gives one choice a request. Set n to 1.")
	}
	if r.MinTokens > 0 {
		return nil, apierror.Invalid("min_tokens", "This model's engine knows no min_tokens. Leave it out.")
	}
	if r.Logprobs {
		return nil, apierror.Invalid("logprobs", "logprobs are not supported for Harmony models on this model's engine. Leave logprobs out.")
	}
	if r.Constraint != nil {
		return nil, apierror.Invalid("", "This model's engine cannot be made to keep to a grammar.")
	}
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
	o.integer("repeat_last_n", len(r.Prompt)+r.MaxTokens) // all of them; newer servers refuse -1
	o.integer("seed", llamacppSeed(r.Seed))
	if len(r.LogitBias) > 0 {
		o.name("logit_bias")
		o.b = appendPairs(o.b, r.LogitBias)
	}
	o.name("stop")
	o.b = append(o.b, "[]"...)
	o.boolean("ignore_eos", false)
	o.boolean("cache_prompt", true)
	o.boolean("return_tokens", true)
	o.boolean("stream", true)
	return o.request("/completion", r.ID), nil
}

// llamacppSeed is a seed of 31 bits; -1 is a random one.
func llamacppSeed(seed *int64) int {
	if seed == nil {
		return -1
	}
	return int(*seed & 0x7fffffff)
}

// appendPairs writes a map as llama.cpp takes a logit_bias: [[id,bias],…].
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

// llamacppDecoder reads events of the form
//
//	{"content":"…", "tokens":[…], "stop":false, "tokens_predicted":1, …}
//
// and a last one without tokens that says why it ended. An event whose
// character took several tokens names only the last of them: where it counts
// more tokens than it names, its text is encoded again. There is no [DONE].
type llamacppDecoder struct {
	stream
	stops     []harmony.Token
	predicted int  // tokens so far, as the engine counts them
	lost      bool // an event has not named all of its tokens
	usage     Usage
}

// Advice tells that ids are not the model's own.
func (d *llamacppDecoder) Advice() string {
	if d.lost {
		return "llama.cpp does not name all tokens of a character in its streams: their text is kept, their ids are made anew"
	}
	return ""
}

// llamacppEvent is what one event says.
type llamacppEvent struct {
	content   []byte // as written
	tokens    []byte // as written
	predicted int
	stop      bool
	reason    []byte // as written
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
				e.readTimings(&s)
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
	return appendNews(chunks, &c), nil
}

// readTimings reads how much of the prompt was cached.
func (e *llamacppEvent) readTimings(s *scanner) {
	if !s.enter('{') {
		return
	}
	for s.more('}') {
		if string(s.key()) == "cache_n" {
			e.cached = s.count()
			continue
		}
		s.skip()
	}
}

// chunk is what an event says of the choice: nothing behind a stop token.
func (d *llamacppDecoder) chunk(e *llamacppEvent) (Chunk, *apierror.Error) {
	if d.finished[0] {
		return Chunk{}, nil
	}
	ids, err := d.take(e.tokens)
	if err != nil {
		return Chunk{}, err
	}
	if len(e.content) > len(`""`) {
		switch fresh := e.predicted - d.predicted; {
		case fresh > len(ids):
			d.lost = true
			ids = d.encoded(text(e.content), ids)
		case len(ids) == 0:
			return Chunk{}, unreadable("an event has text and no tokens")
		}
	}
	d.predicted = e.predicted
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

// encoded are ids of an event's text, in place of those that it names and those
// that are lost. Only the last that it names can be a special one, for that ends
// a character: whatever else spells one is text.
func (d *llamacppDecoder) encoded(content string, named []harmony.Token) []harmony.Token {
	var last []harmony.Token
	if n := len(named); n > 0 {
		if name, special := harmony.SpecialName(named[n-1]); special {
			content, last = strings.TrimSuffix(content, name), named[n-1:]
		}
	}
	from := len(d.ids)
	d.ids = append(harmony.AppendEncode(d.ids, content), last...)
	return d.ids[from:len(d.ids):len(d.ids)]
}

// llamacppFinish reads "eos", "word", "limit" and "none".
func llamacppFinish(raw []byte) Finish {
	switch string(raw) {
	case `"limit"`:
		return FinishLength
	case `"eos"`, `"word"`:
		return FinishStop
	}
	return FinishAbort
}
