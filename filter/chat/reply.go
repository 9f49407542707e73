package chat

import (
	"errors"
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Reply turns the engine's chunks into the reply to one request. Streams and
// whole objects are made of the same events: a stream writes each event at once,
// the object is written at the end, from what the events add up to.
//
// It is an [api.Reply], and not safe for concurrent use. It is large because each step of
// a reply, and each piece of its JSON, is a method.
type Reply struct {
	request *Request
	mode    api.Mode
	created int64 // Unix seconds
	phase   phase
	failure *apierror.Error // that the reply ends with; nil: none
	fault   error           // for the log
	choices []choice
	turns   turns
	cached  int    // tokens of the current turn's prompt; engine.Unknown until the engine reports them
	version string // the engine's fingerprint

	// Of a stream, while a method runs:
	dst      []byte
	head     []byte // the members with which every event begins
	open     delta
	logprobs []byte // entries of the open delta, each followed by a comma
	plain    []byte // of a custom tool's call: the piece of text being added
}

// phase is the step that a reply is in.
type phase uint8

const (
	preparing phase = iota // the first model call has not begun
	calling                // a model call is being made
	keeping                // jobs write to the store what later requests need
	ended                  // the reply is complete
)

// choice is one of the n choices of the reply.
type choice struct {
	index     int
	reader    *turn.Reader
	begun     bool // the role has been sent
	state     choiceState
	outOfRoom bool // the reply's tokens are used up before its next turn

	hasReasoning, hasContent bool // some text has been written

	unwrap turn.Unwrapper // of a custom tool's call that is being written

	// Of a whole object: the texts as they stand between the quotes of JSON.
	reasoning []byte
	content   []byte
	logprobs  []byte // entries, each followed by a comma
	calls     []calledTool
	tokens    []harmony.Token // of a stream those of the finish event, while it is held back
}

// choiceState is how far a choice is.
type choiceState uint8

const (
	generating choiceState = iota // its output is being read
	finished                      // its output is complete, and its finish event is still to be sent
	closed                        // its finish event has been sent
)

type calledTool struct {
	*turn.CalledTool
	arguments []byte
}

// NewReply begins the reply to the request. In [api.SingleCall] mode the model
// call is being made already, and the first step follows it.
func (r *Request) NewReply(m api.Mode) api.Reply {
	reply := &Reply{
		request: r, mode: m, created: r.rc.Now().Unix(), cached: engine.Unknown,
		choices: make([]choice, r.Engine().N), turns: turns{current: r.turn, count: 1},
	}
	if m == api.SingleCall {
		reply.phase = calling
	}
	for i := range reply.choices {
		c := &reply.choices[i]
		c.index = i
		c.reader = r.turn.NewReader(func(e turn.Event) { reply.event(c, e) })
	}
	return reply
}

// Step begins the next step: the first model call, the model calls that correct
// calls of unknown tools, and then the jobs that write to the store what later
// requests need. An error fails the reply.
func (r *Reply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	if r.phase >= keeping {
		return dst, api.Step{}, nil
	}
	if r.failure == nil {
		if r.phase == preparing {
			r.phase = calling
			return dst, api.Step{Call: r.request.Engine()}, nil
		}
		var err *apierror.Error
		if dst, err = r.closeChoices(dst); err != nil {
			return dst, api.Step{}, err
		}
		if next, err := r.nextTurn(); next != nil || err != nil {
			return dst, api.Step{Call: next}, err
		}
	}
	r.phase = keeping
	return dst, api.Step{Jobs: r.keepJobs()}, nil
}

// closeChoices ends the choices whose end the engine has not reported.
func (r *Reply) closeChoices(dst []byte) ([]byte, *apierror.Error) {
	r.dst = dst
	var err *apierror.Error
	for i := range r.choices {
		c := &r.choices[i]
		r.begin(c)
		if err = c.reader.Close(); err != nil {
			r.closeDelta(nil)
			break
		}
		r.settle(c, nil)
	}
	dst, r.dst = r.dst, nil
	return dst, err
}

// keepJobs returns the jobs that keep what later requests need of the choices
// that have ended in tool calls.
func (r *Reply) keepJobs() []api.Job {
	var jobs []api.Job
	for i := range r.choices {
		if k := r.choices[i].reader.Kept(); k != nil {
			jobs = append(jobs, k)
		}
	}
	return jobs
}

// JobDone takes the result of a job. An error is a fault: the client gets its
// reply all the same.
func (r *Reply) JobDone(dst []byte, _ int, _ any, err error) []byte {
	r.fault = errors.Join(r.fault, err)
	return dst
}

// Fault returns what went wrong without an error for the client, such as that
// reasoning could not be kept; nil if nothing did.
func (r *Reply) Fault() error { return errors.Join(r.request.turn.Fault(), r.fault) }

// Push takes a chunk of the engine and appends to dst what the client gets of
// it: whole server-sent events, or nothing if the client wants one object. An
// error fails the reply.
func (r *Reply) Push(dst []byte, chunk *engine.Chunk) ([]byte, *apierror.Error) {
	if r.phase != calling || r.failure != nil {
		return dst, nil
	}
	if err := chunk.Refusal(len(r.choices)); err != nil {
		return dst, err
	}
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		r.cached = chunk.Usage.CachedTokens
		r.choices[0].reader.Cached(chunk.Usage)
	}
	if chunk.Fingerprint != "" && chunk.Fingerprint != r.version {
		r.version, r.head = chunk.Fingerprint, nil
	}
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}
	r.dst = dst
	c := &r.choices[chunk.Index]
	r.begin(c)
	taken, err := c.reader.Push(chunk)
	if err == nil && len(c.logprobs) > turn.MaxLogprobs {
		err = turn.LogprobsTooLarge("logprobs", "max_tokens")
	}
	if err != nil {
		r.closeDelta(nil)
	} else {
		r.settle(c, chunk.Tokens[:taken])
	}
	dst, r.dst = r.dst, nil
	return dst, err
}

// settle completes what the last tokens of a choice have begun to write: the open
// delta, and the finish event if the choice has ended. The finish event is held
// back until the end of the reply if the reply has another turn, or something to
// keep first: a client may answer the choice's calls as soon as it has read it.
func (r *Reply) settle(c *choice, tokens []harmony.Token) {
	ends := c.reader.Finish() != turn.FinishNone && c.state == generating
	if ends {
		c.state = finished
	}
	tokenIDs := r.request.options.tokenIDs
	switch {
	case !r.request.options.stream:
		if tokenIDs {
			c.tokens = append(c.tokens, tokens...)
		}
	case ends && r.correctable(c):
		r.closeDelta(nil)
	case ends:
		r.closeDelta(nil)
		if c.reader.Kept() != nil {
			c.tokens = append(c.tokens, tokens...)
			return
		}
		r.writeFinish(c, tokens)
	default:
		if tokenIDs && len(tokens) > 0 {
			r.openAny(c)
		}
		r.closeDelta(tokens)
	}
}

// Done reports whether nothing that the engine may still send can change the
// reply, so that the model call can be dropped.
func (r *Reply) Done() bool {
	if r.failure != nil {
		return true
	}
	early := false
	for i := range r.choices {
		if r.choices[i].state == generating {
			return false
		}
		early = early || r.choices[i].reader.Early()
	}
	return early
}

// End appends the rest of the reply: the last events of a stream, or the whole
// object. If the reply has failed, a stream ends with an error event, and the
// error of a whole object is returned.
func (r *Reply) End(dst []byte) ([]byte, *apierror.Error) {
	if r.phase == ended {
		return dst, nil
	}
	r.phase = ended
	stream := r.request.options.stream
	switch {
	case r.failure != nil && stream:
		return append(append(append(dst, "data: "...), r.failure.JSON()...), "\n\ndata: [DONE]\n\n"...), nil
	case r.failure != nil:
		return dst, r.failure
	}
	r.dst = dst
	if stream {
		r.writeStreamEnd()
	} else {
		r.writeObject()
	}
	dst, r.dst = r.dst, nil
	return dst, nil
}

// Fail makes the reply end with an error; the first one counts.
func (r *Reply) Fail(dst []byte, err *apierror.Error) []byte {
	if r.failure == nil {
		r.failure = err
	}
	return dst
}

// Cancel ends the reply because the client has left. It returns the jobs that
// keep what the choices so far leave for later requests.
func (r *Reply) Cancel() []api.Job {
	var jobs []api.Job
	if r.phase < keeping {
		jobs = r.keepJobs()
	}
	r.phase = ended
	return jobs
}

// Summary returns what the reply has come to so far.
func (r *Reply) Summary() turn.Summary {
	s := r.turns.earlier
	s.Repairs = maps.Clone(s.Repairs)
	s.Prompt, s.Cached, s.Finish = r.promptTokens(), r.cachedTokens(), r.choices[0].reader.Finish()
	for i := range r.choices {
		r.choices[i].reader.AddTo(&s)
	}
	return s
}
