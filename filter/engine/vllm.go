package engine

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// vllm is vLLM's OpenAI-compatible API POST /v1/completions, with token ids as
// input and output.
type vllm struct {
	httpErrors
	kvTransfer
}

func (vllm) Kind() string { return "vllm" }

func (v vllm) Traits() Traits {
	return Traits{Constrains: true, NamesModel: true, KVHints: true, Disaggregation: v}
}

func (vllm) Ignores(*Request) []string { return nil }

// Encode returns a completion request. The limit of output tokens is always
// sent, because vLLM's default is 16. The id is sent as a header, which vLLM
// prefers to the id in the body.
func (vllm) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := validate(r); err != nil {
		return nil, err
	}

	o := newBody(r)
	o.text("model", r.Model)
	o.ids("prompt", r.Prompt)
	o.sampling(r)
	o.limits(r, "max_tokens", "min_tokens", "seed")
	o.streaming(r)
	// The ids of a prefill reply are not used.
	o.boolean("return_token_ids", !r.unstreamed())
	o.kvTransferParams(r)
	if r.Logprobs {
		o.integer("logprobs", r.atLeastOne())
		// Needed because several tokens can have the same text.
		o.boolean("return_tokens_as_token_ids", true)
	}
	o.structuredOutputs(r)
	o.scheduling(r)
	o.kvHints(r)
	return o.request("/v1/completions", r.ID.String()), nil
}

func (vllm) NewDecoder(r *Request) Decoder {
	d := &vllmDecoder{stream: newStream(r)}
	d.read = d.event
	return d
}

func (vllm) NewPrefillReader(*Request) PrefillReader { return &objectReader{} }

// vllmDecoder decodes events of the form
//
//	{"choices":[{"index":0,"finish_reason":null,"prompt_token_ids":null,"token_ids":[…]}], "usage":…, …}
//
// token_ids contains the ids since the last event, including the stop token.
// The first event of a choice also contains the ids of the prompt, which are
// skipped. The usage comes in an event without choices.
type vllmDecoder struct {
	stream
	usage Usage
}

func (d *vllmDecoder) event(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	var fingerprint []byte
	var hasUsage bool
	from := len(chunks)
	known := false

	s := scanner{b: data}
	if s.enter('{') {
		for s.more('}') {
			switch string(s.key()) {
			case "choices":
				known = true
				var err *apierror.Error
				if chunks, err = d.choices(&s, chunks); err != nil {
					return chunks, err
				}
			case "usage":
				hasUsage = d.readUsage(&s)
			case "system_fingerprint":
				fingerprint = s.raw()
			case "error":
				// Of an event with an error nothing counts, whatever came before it in the object.
				return chunks[:from], eventError(data)
			default:
				s.skip()
			}
		}
	}

	if !s.whole() || !known {
		return chunks[:from], unreadable("an event is not vLLM's")
	}

	// The event of the usage has no choices: a chunk of the first one, without tokens, has it.
	if hasUsage || len(fingerprint) > 2 {
		if len(chunks) == from {
			chunks = append(chunks, Chunk{})
		}
		last := &chunks[len(chunks)-1]
		last.Fingerprint = text(fingerprint)
		if hasUsage {
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
		return chunks, unreadable("a choice is not an object")
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
		// The caller reports the error.
		return chunks, nil
	}
	if ok, err := d.isOpen(index); !ok {
		return chunks, err
	}

	finish, err := vllmFinish(reason)
	if err != nil {
		return chunks, err
	}
	// null, or nothing, from a vLLM that does not know return_token_ids.
	if len(ids) == 0 || ids[0] != '[' {
		return chunks, unreadable("it has no token_ids. The engine's operator has to update vLLM")
	}

	c := Chunk{Index: index, Finish: finish}
	if c.Tokens, err = d.parseIDs(ids); err != nil {
		return chunks, err
	}
	if d.logprobs.requested {
		d.logprobs.next()
		d.logprobs.readVLLM(logprobs)
		if c.Logprobs, err = d.logprobs.forTokens(c.Tokens); err != nil {
			return chunks, err
		}
	}

	if finish != FinishNone {
		d.finish(index)
	}
	return appendChunk(chunks, &c), nil
}

// vllmFinish parses null, "stop", "length", "abort" and "error".
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

// readUsage reads a usage object. It returns false for null.
func (d *vllmDecoder) readUsage(s *scanner) bool {
	// vLLM reports cached tokens only if it runs with --enable-prompt-tokens-details.
	cached := Unknown
	known := s.member("prompt_tokens_details", func() {
		s.member("cached_tokens", func() { cached = s.count() })
	})
	if known {
		d.usage.CachedTokens = cached
	}
	return known
}

// readVLLM reads the log probabilities of vLLM's completions API or of its
// generate API:
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

// readNamed reads the most likely tokens of one position, or null.
func (l *logprobs) readNamed(s *scanner) {
	if s.enter('{') {
		for s.more('}') {
			token := tokenOf(s.key())
			l.addTop(token, s.number())
		}
	}
	l.endPosition()
}

// readContent reads one position.
func (l *logprobs) readContent(s *scanner) {
	token, v := s.tokenLogprob(func() {
		s.elements(func() { l.addTop(s.tokenLogprob(s.skip)) })
	})
	l.tokens = append(l.tokens, token)
	l.value(v)
	l.endPosition()
}

// tokenLogprob reads {"token_id":5,"logprob":-0.5,…}. readTop reads its member
// top_logprobs.
func (s *scanner) tokenLogprob(readTop func()) (token harmony.Token, v float64) {
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
			readTop()
		default:
			s.skip()
		}
	}
	return token, v
}
