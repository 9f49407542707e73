package engine

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// sglang is SGLang's native HTTP API, POST /generate.
type sglang struct {
	httpErrors
	bootstrapRoom
}

func (sglang) Kind() string { return "sglang" }

func (s sglang) Traits() Traits { return Traits{Constrains: true, Disaggregation: s} }

func (sglang) Ignores(*Request) []string { return nil }

// Encode returns a GenerateReqInput. The limit of output tokens is always sent,
// because SGLang's default is 128.
func (sglang) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := validate(r); err != nil {
		return nil, err
	}

	o := newBody(r)
	o.text("rid", r.ID.String())
	o.ids("input_ids", r.Prompt)
	o.name("sampling_params")
	p := newObject(o.b)
	p.sampling(r)
	p.limits(r, "max_new_tokens", "min_new_tokens", "sampling_seed")
	// SGLang cuts the stop token off by default, which says whether the model ended or calls a tool.
	p.boolean("no_stop_trim", true)
	p.text("structural_tag", structuralTag(r))
	o.b = p.end()

	o.boolean("stream", true)
	o.bootstrap(r)
	if r.Logprobs {
		o.boolean("return_logprob", true)
		// No log probabilities of the prompt.
		o.integer("logprob_start_len", -1)
		o.integer("top_logprobs_num", r.TopLogprobs)
	}
	o.scheduling(r)

	return o.request("/generate", ""), nil
}

func (sglang) NewDecoder(r *Request) Decoder {
	d := &sglangDecoder{stream: newStream(r)}
	d.read = d.event
	d.choices = make([]sglangChoice, len(d.finished))
	return d
}

func (s sglang) NewPrefillReader(prefill *Request) PrefillReader {
	return newBootstrapReader(s, prefill)
}

// sglangDecoder decodes events of the form
//
//	{"text":…, "output_ids":[…], "meta_info":{"finish_reason":…, "completion_tokens":…, …}, "index":…}
//
// output_ids contains all ids of the choice so far, or only those since the
// last event if SGLang runs with --incremental-streaming-output.
type sglangDecoder struct {
	stream
	choices []sglangChoice
	started bool // an event has been decoded
	usage   Usage
	version string
}

// sglangChoice is the state of a choice.
type sglangChoice struct {
	seen       int           // number of ids decoded
	first      harmony.Token // the first of them
	cumulative bool          // its events contain all ids so far
}

// Advice recommends the option with which the size of the reply does not grow
// with the square of its length.
func (d *sglangDecoder) Advice() string {
	if slices.ContainsFunc(d.choices, func(c sglangChoice) bool { return c.cumulative }) {
		return "SGLang repeats all output ids in every event: start it with --incremental-streaming-output"
	}
	return ""
}

// sglangEvent is a decoded event.
type sglangEvent struct {
	index      int
	ids        []byte // as JSON
	completion int
	cached     int
	version    []byte
	finish     []byte // as JSON
	logprobs   []byte // as JSON, of the ids
	likeliest  []byte // as JSON, at the positions of the ids
}

func (d *sglangDecoder) event(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	e := sglangEvent{completion: Unknown, cached: Unknown}
	s := scanner{b: data}
	if s.enter('{') {
		for s.more('}') {
			switch string(s.key()) {
			case "output_ids":
				e.ids = s.raw()
			case "meta_info":
				e.readMeta(&s)
			case "index":
				e.index = s.count()
			case "error":
				return chunks, eventError(data)
			default:
				s.skip()
			}
		}
	}

	if !s.whole() || e.ids == nil {
		return chunks, unreadable("an event is not SGLang's")
	}
	if ok, err := d.isOpen(e.index); !ok {
		return chunks, err
	}
	return d.chunk(&e, chunks)
}

func (e *sglangEvent) readMeta(s *scanner) {
	if !s.enter('{') {
		return
	}

	for s.more('}') {
		switch string(s.key()) {
		case "finish_reason":
			e.finish = s.raw()
		case "completion_tokens":
			e.completion = s.count()
		case "cached_tokens":
			e.cached = s.count()
		case "weight_version":
			e.version = s.raw()
		case "output_token_logprobs":
			e.logprobs = s.raw()
		case "output_top_logprobs":
			e.likeliest = s.raw()
		default:
			s.skip()
		}
	}
}

func (d *sglangDecoder) chunk(e *sglangEvent, chunks []Chunk) ([]Chunk, *apierror.Error) {
	finish, err := readFinish(e.finish)
	if err != nil {
		return chunks, err
	}
	fresh := d.fresh(e, finish)
	ids, err := d.parseIDs(lastIDs(e.ids, fresh))
	if err != nil {
		return chunks, err
	}

	choice := &d.choices[e.index]
	if choice.seen == 0 && len(ids) > 0 {
		choice.first = ids[0]
	}
	choice.seen += fresh

	c := Chunk{Index: e.index, Tokens: ids, Finish: finish}
	if d.logprobs.requested && fresh > 0 {
		d.logprobs.next()
		d.logprobs.readSGLang(e.logprobs, e.likeliest, fresh)
		if c.Logprobs, err = d.logprobs.forTokens(ids); err != nil {
			return chunks, err
		}
	}

	// Every event has the counts and the version. They do not change.
	if !d.started {
		d.started = true
		d.usage.CachedTokens = e.cached
		c.Usage = &d.usage
		// "default" is what SGLang says if it was not given a version.
		if v := text(e.version); v != "default" {
			d.version = v
		}
		c.Fingerprint = d.version
	}

	if finish != FinishNone {
		d.finish(e.index)
	}
	return appendChunk(chunks, &c), nil
}

// fresh returns how many of the event's last ids are new. An event with more
// ids than there are new ones repeats old ones: it contains either all ids of
// the choice, as all later events do, or it is an abort, which repeats the last
// ids.
func (d *sglangDecoder) fresh(e *sglangEvent, finish Finish) int {
	// Once an event has repeated ids, all later ones of its choice do.
	c, count := &d.choices[e.index], countIDs(e.ids)
	if !c.cumulative {
		if e.completion == Unknown || count <= e.completion-c.seen && !d.repeatsAll(e, count) {
			return count
		}
		c.cumulative = finish != FinishAbort
	}
	return max(count-c.seen, 0)
}

// repeatsAll reports whether the event contains all ids of the choice in a case
// that the counts do not decide: if completion_tokens is ahead of the ids,
// which happens when tokens after a stop are cut off, all ids may be new.
func (d *sglangDecoder) repeatsAll(e *sglangEvent, count int) bool {
	c := d.choices[e.index]
	if c.seen == 0 || count <= c.seen || count == e.completion-c.seen {
		return false
	}

	// The first id of the choice at the beginning of the event says that all are there.
	ids, err := d.parseIDs(e.ids)
	return err == nil && ids[0] == c.first
}

// readFinish parses null, {"type":"stop","matched":…}, {"type":"length",…} and
// {"type":"abort","message":…,"status_code":…}. An abort with a status code is
// an error of the engine.
func readFinish(raw []byte) (Finish, *apierror.Error) {
	if len(raw) == 0 || raw[0] == 'n' {
		return FinishNone, nil
	}

	// A kind alone, without an object around it, is taken too.
	var kind, message []byte
	status := Unknown
	s := scanner{b: raw}
	if !s.enter('{') {
		kind = raw
	} else {
		for s.more('}') {
			switch string(s.key()) {
			case "type":
				kind = s.raw()
			case "message":
				message = s.raw()
			case "status_code":
				status = s.count()
			default:
				s.skip()
			}
		}
	}
	if s.bad {
		return FinishNone, unreadable("a finish reason is not SGLang's")
	}

	switch string(kind) {
	case `"length"`:
		return FinishLength, nil
	case `"abort"`:
		// Without a status the request was given up: another engine may go on.
		if status == Unknown {
			return FinishAbort, nil
		}
		return FinishNone, translate(failure{status: status, message: text(message)})
	}
	return FinishStop, nil
}

// readSGLang reads the last elements of SGLang's lists of the output tokens and of the
// most likely tokens, as many as are fresh:
//
//	[[-0.5,5,null],…]
//	[[[-0.5,5,null],…],…]
func (l *logprobs) readSGLang(own, likeliest []byte, fresh int) {
	s := scanner{b: own}
	s.last(fresh, func() {
		token, v := s.pair()
		l.tokens = append(l.tokens, token)
		l.value(v)
	})

	s = scanner{b: likeliest}
	if len(likeliest) == 0 {
		return
	}
	s.last(fresh, func() {
		s.elements(func() { l.addTop(s.pair()) })
		l.endPosition()
	})
}

// pair reads [-0.5,5,…].
func (s *scanner) pair() (token harmony.Token, v float64) {
	n := 0
	s.elements(func() {
		n++
		switch n {
		case 1:
			v = s.number()
		case 2:
			token = tokenOf(s.raw())
		default:
			s.skip()
		}
	})
	return token, v
}
