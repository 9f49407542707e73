package engine

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// vllm is vLLM's OpenAI-compatible POST /v1/completions with token ids in and
// out.
type vllm struct {
	httpErrors
	handedOver
}

func (vllm) Kind() string { return "vllm" }

func (vllm) Constrains() bool { return true }

func (vllm) Ignores(*Request) []string { return nil }

// Encode writes a completion request. The limit of output tokens is always
// sent: vLLM's own default is 16. The id goes into the header, which vLLM
// prefers to the body's.
func (vllm) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := refuse(r); err != nil {
		return nil, err
	}
	o := newBody(r)
	o.text("model", r.Model)
	o.ids("prompt", r.Prompt)
	o.sampling(r)
	o.limits(r, "max_tokens", "min_tokens", "seed")
	o.streamed(r)
	o.boolean("return_token_ids", r.Leg == nil || !r.Leg.Whole) // of a whole reply nobody reads them
	o.transfer(r)
	if r.Logprobs {
		o.integer("logprobs", r.atLeastOne())
		o.boolean("return_tokens_as_token_ids", true) // a text can be that of several tokens
	}
	o.structuredOutputs(r)
	o.scheduling(r)
	return o.request("/v1/completions", r.ID), nil
}

func (vllm) NewDecoder(r *Request) Decoder {
	d := &vllmDecoder{stream: newStream(r)}
	d.read = d.event
	return d
}

func (vllm) NewPrefillReader(*Request) PrefillReader { return &wholeReader{} }

// vllmDecoder reads events of the form
//
//	{"choices":[{"index":0,"finish_reason":null,"prompt_token_ids":null,"token_ids":[…]}], "usage":…, …}
//
// token_ids are those since the last event, the stop token among them. The
// first event of a choice repeats the prompt's ids, which are stepped over. The
// usage stands in an event of its own, without choices.
type vllmDecoder struct {
	stream
	usage Usage
}

func (d *vllmDecoder) event(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	var fingerprint []byte
	var told bool // usage
	from := len(chunks)
	s := scanner{b: data}
	ours := false
	if s.enter('{') {
		for s.more('}') {
			switch string(s.key()) {
			case "choices":
				ours = true
				var err *apierror.Error
				if chunks, err = d.choices(&s, chunks); err != nil {
					return chunks, err
				}
			case "usage":
				told = d.readUsage(&s)
			case "system_fingerprint":
				fingerprint = s.raw()
			case "error":
				return chunks[:from], eventError(data)
			default:
				s.skip()
			}
		}
	}
	if !s.whole() || !ours {
		return chunks[:from], unreadable("an event is not vLLM's")
	}
	if told || len(fingerprint) > 2 {
		if len(chunks) == from {
			chunks = append(chunks, Chunk{})
		}
		last := &chunks[len(chunks)-1]
		last.Fingerprint = text(fingerprint)
		if told {
			last.Usage = &d.usage
		}
	}
	return chunks, nil
}

func (d *vllmDecoder) choices(s *scanner, chunks []Chunk) ([]Chunk, *apierror.Error) {
	if !s.enter('[') {
		return chunks, nil
	}
	for s.more(']') {
		var err *apierror.Error
		if chunks, err = d.choice(s, chunks); err != nil {
			return chunks, err
		}
	}
	return chunks, nil
}

func (d *vllmDecoder) choice(s *scanner, chunks []Chunk) ([]Chunk, *apierror.Error) {
	var ids, reason, logprobs []byte
	index := 0
	if !s.enter('{') {
		return chunks, unreadable("a choice is no object")
	}
	for s.more('}') {
		switch string(s.key()) {
		case "index":
			index = s.count()
		case "token_ids":
			ids = s.raw()
		case "finish_reason":
			reason = s.raw()
		case "logprobs":
			logprobs = s.raw()
		default:
			s.skip()
		}
	}
	if s.bad {
		return chunks, nil // reported for the whole event
	}
	if ok, err := d.expects(index); !ok {
		return chunks, err
	}
	finish, err := vllmFinish(reason)
	if err != nil {
		return chunks, err
	}
	if len(ids) == 0 || ids[0] != '[' { // null, where vLLM does not know return_token_ids
		return chunks, unreadable("it has no token_ids, so its vLLM is too old")
	}
	c := Chunk{Index: index, Finish: finish}
	if c.Tokens, err = d.take(ids); err != nil {
		return chunks, err
	}
	if d.logprobs.asked {
		d.logprobs.next()
		d.logprobs.readVLLM(logprobs)
		if c.Logprobs, err = d.logprobs.of(c.Tokens); err != nil {
			return chunks, err
		}
	}
	if finish != FinishNone {
		d.finish(index)
	}
	return appendNews(chunks, &c), nil
}

// vllmFinish reads null, "stop", "length", "abort" and "error".
func vllmFinish(raw []byte) (Finish, *apierror.Error) {
	switch string(raw) {
	case "", "null":
		return FinishNone, nil
	case `"length"`:
		return FinishLength, nil
	case `"abort"`:
		return FinishAbort, nil
	case `"error"`:
		return FinishNone, translate(failure{status: 500})
	}
	return FinishStop, nil
}

// readUsage keeps the counts of a usage object; false for null.
func (d *vllmDecoder) readUsage(s *scanner) bool {
	if !s.enter('{') {
		return false
	}
	d.usage.CachedTokens = Unknown
	for s.more('}') {
		if string(s.key()) == "prompt_tokens_details" {
			d.readDetails(s)
			continue
		}
		s.skip()
	}
	return true
}

func (d *vllmDecoder) readDetails(s *scanner) {
	if !s.enter('{') {
		return
	}
	for s.more('}') {
		if string(s.key()) == "cached_tokens" {
			d.usage.CachedTokens = s.count()
			continue
		}
		s.skip()
	}
}

// readVLLM reads what vLLM's completions tell, or its generate API:
//
//	{"tokens":["token_id:5",…],"token_logprobs":[-0.5,…],"top_logprobs":[{"token_id:5":-0.5,…},…],…}
//	{"content":[{"token_id":5,"logprob":-0.5,"top_logprobs":[{"token_id":5,"logprob":-0.5,…},…],…},…]}
func (l *logprobs) readVLLM(raw []byte) {
	s := scanner{b: raw}
	if !s.enter('{') {
		return
	}
	for s.more('}') {
		switch string(s.key()) {
		case "tokens":
			s.elements(func() { l.tokens = append(l.tokens, tokenOf(s.raw())) })
		case "token_logprobs":
			s.elements(func() { l.value(s.number()) })
		case "top_logprobs":
			s.elements(func() { l.readNamed(&s) })
		case "content":
			s.elements(func() { l.readContent(&s) })
		default:
			s.skip()
		}
	}
}

// readNamed reads the likeliest tokens of one place, or null.
func (l *logprobs) readNamed(s *scanner) {
	if s.enter('{') {
		for s.more('}') {
			token := tokenOf(s.key())
			l.likely(token, s.number())
		}
	}
	l.place()
}

// readContent reads one place.
func (l *logprobs) readContent(s *scanner) {
	token, v := s.tokenLogprob(func() {
		s.elements(func() { l.likely(s.tokenLogprob(s.skip)) })
	})
	l.tokens = append(l.tokens, token)
	l.value(v)
	l.place()
}

// tokenLogprob reads {"token_id":5,"logprob":-0.5,…}; likeliest reads its
// member top_logprobs.
func (s *scanner) tokenLogprob(likeliest func()) (token harmony.Token, v float64) {
	token, v = noToken, math.NaN()
	if !s.enter('{') {
		return token, v
	}
	for s.more('}') {
		switch string(s.key()) {
		case "token_id":
			token = tokenOf(s.raw())
		case "logprob":
			v = s.number()
		case "top_logprobs":
			likeliest()
		default:
			s.skip()
		}
	}
	return token, v
}
