package messages

import (
	"errors"
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Reply turns the engine's chunks into the reply to one request. Streams and
// whole objects are made of the same events: a stream writes each event at once,
// the object is written at the end, from what the events add up to.
//
// It is an [api.Reply], and not safe for concurrent use. It is large because each step of a
// reply, each kind of event and each question of a run is a method.
type Reply struct {
	request *Request
	mode    api.Mode
	phase   phase
	failure *apierror.Error // that the reply ends with; nil: none
	fault   error           // for the log
	reader  *turn.Reader    // of the current turn; nil until there is one
	turns   turns
	runs    runs
	jobs    []stepJob // of the current step
	cached  int       // tokens of the current turn's prompt; engine.Unknown until the engine reports them
	begun   bool      // a stream's message_start has been written

	blocks block  // the content block being written, and how many there are
	whole  []byte // of a whole object: its content blocks, each followed by a comma
	dst    []byte // while a method runs
}

// phase is the step that a reply is in.
type phase uint8

const (
	preparing phase = iota // the first model call has not begun
	calling                // a model call is being made
	running                // tools are being run
	keeping                // jobs write to the store what later requests need
	ended                  // the reply is complete
)

// NewReply begins the reply to the request. In [api.SingleCall] mode the model
// call is being made already, and the first step follows it.
func (r *Request) NewReply(m api.Mode) api.Reply {
	reply := &Reply{request: r, mode: m, cached: engine.Unknown, turns: turns{count: 1}}
	if m == api.SingleCall {
		reply.phase = calling
	}
	reply.runs.reply = reply
	if r.turn != nil {
		reply.beginTurn(r.turn)
	}
	return reply
}

// Step begins the next step: lists of tools, the first model call, tools and the model
// calls that follow them, and then the jobs that write to the store what later
// requests need. An error fails the reply.
func (r *Reply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	if r.phase >= keeping {
		return dst, api.Step{}, nil
	}
	if r.failure == nil {
		r.dst = dst
		step, err := r.nextStep()
		dst, r.dst = r.dst, nil
		if err != nil || step.Call != nil || len(step.Jobs) > 0 {
			return dst, step, err
		}
	}
	r.phase = keeping
	return dst, r.runJobs(r.keepJobs()), nil
}

// nextStep begins the next step of a reply that has not failed; an empty one if its
// output is complete.
func (r *Reply) nextStep() (api.Step, *apierror.Error) {
	switch {
	case r.phase == preparing && r.request.preflight != nil:
		return r.request.preflight.step(r)
	case r.phase == preparing:
		r.phase = calling
		return api.Step{Call: r.request.Engine()}, nil
	case r.phase == calling:
		r.begin()
		err := r.reader.Close()
		r.closeDelta()
		if err != nil {
			return api.Step{}, err
		}
		if jobs := r.runs.begin(); len(jobs) > 0 {
			r.phase = running
			return r.runJobs(append(r.keepJobs(), jobs...)), nil
		}
	}
	next, err := r.nextTurn()
	if next != nil {
		r.phase = calling
	}
	return api.Step{Call: next}, err
}

// stepJob is a job of a step, with the function that takes what came of it.
type stepJob struct {
	job  api.Job
	done func(result any, err error)
}

// runJobs is the step of some jobs.
func (r *Reply) runJobs(jobs []stepJob) api.Step {
	r.jobs = jobs
	step := api.Step{Jobs: make([]api.Job, len(jobs))}
	for i := range jobs {
		step.Jobs[i] = jobs[i].job
	}
	return step
}

// keepJobs returns the job that keeps what later requests need of a turn that has ended
// in tool calls. An error is a fault: the client gets its reply all the same.
func (r *Reply) keepJobs() []stepJob {
	if r.reader == nil {
		return nil
	}
	if k := r.reader.Kept(); k != nil {
		return []stepJob{{k, func(_ any, err error) { r.fault = errors.Join(r.fault, err) }}}
	}
	return nil
}

// JobDone takes the result of a job.
func (r *Reply) JobDone(dst []byte, i int, result any, err error) []byte {
	if i >= len(r.jobs) || r.phase == ended {
		return dst
	}
	r.dst = dst
	r.jobs[i].done(result, err)
	dst, r.dst = r.dst, nil
	return dst
}

// Fault returns what went wrong without an error for the client, such as that
// reasoning could not be kept; nil if nothing did.
func (r *Reply) Fault() error { return errors.Join(r.turnFault(), r.fault) }

// turnFault returns the fault of the first turn.
func (r *Reply) turnFault() error {
	if r.request.turn == nil {
		return nil
	}
	return r.request.turn.Fault()
}

// Push takes a chunk of the engine and appends to dst what the client gets of
// it: whole server-sent events, or nothing if the client wants one object. An
// error fails the reply.
func (r *Reply) Push(dst []byte, chunk *engine.Chunk) ([]byte, *apierror.Error) {
	if r.phase != calling || r.failure != nil {
		return dst, nil
	}
	if err := chunk.Refusal(1); err != nil {
		return dst, err
	}
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		r.cached = chunk.Usage.CachedTokens
		r.reader.Cached(chunk.Usage)
	}
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}
	r.dst = dst
	r.begin()
	_, err := r.reader.Push(chunk)
	r.closeDelta()
	dst, r.dst = r.dst, nil
	return dst, err
}

// Done reports whether nothing that the engine may still send can change the
// reply, so that the model call can be dropped.
func (r *Reply) Done() bool {
	return r.failure != nil || r.reader != nil && r.reader.Finish() != turn.FinishNone && r.reader.Early()
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
		_, object := r.failure.Anthropic(r.request.rc.RequestID)
		return append(append(append(dst, "event: error\ndata: "...), object...), "\n\n"...), nil
	case r.failure != nil:
		return dst, r.failure
	}
	r.dst = dst
	if stream {
		r.writeEnd()
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
// keep what the reply so far leaves for later requests.
func (r *Reply) Cancel() []api.Job {
	var step api.Step
	if r.phase == calling {
		step = r.runJobs(r.keepJobs())
	}
	r.phase = ended
	return step.Jobs
}

// Summary returns what the reply has come to so far.
func (r *Reply) Summary() turn.Summary {
	s := r.turns.earlier
	s.Repairs = maps.Clone(s.Repairs)
	s.Cached = engine.Unknown
	if r.reader == nil {
		return s
	}
	s.Prompt, s.Finish = r.promptTokens(), r.reader.Finish()
	if r.cached != engine.Unknown {
		s.Cached = r.turns.earlierCached + r.cached
	}
	r.reader.AddTo(&s)
	return s
}

// Turn is the turn of the model call being made; nil before the first one.
func (r *Reply) Turn() *turn.Turn { return r.turns.current }
