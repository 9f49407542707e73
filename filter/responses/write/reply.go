package write

import (
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Reply turns the engine's chunks into the reply to one request. Streams and whole
// objects are made of the same events: a stream has each as it comes, the object is
// what they add up to.
//
// It is an api.BackgroundReply, and is not safe for concurrent use.
//
// It is large because 17 of its methods are those of api.BackgroundReply, and each step of
// the loop is one.
type Reply struct {
	request *Request
	mode    api.Mode
	phase   phase

	events eventWriter
	output output
	model  modelCalls
	tools  toolRuns
	steps  steps
	object responseObject

	compaction *compaction // nil: the reply is the model's own
	summary    summary     // of a compaction
	ending     ending      // from phaseFinished on
	lost       error       // why a background response could not be stored as it has ended
	fault      error       // what went wrong without an error for the client
}

// phase is how far a reply has come. What is stored is decided in phaseFinished,
// what the client gets as its end in phaseCommitted.
type phase uint8

const (
	phaseNew        phase = iota // no event has been written
	phaseOpen                    // steps follow
	phaseFinished                // it is known how the response ends
	phaseCommitting              // that is being stored
	phaseCommitted               // it is stored, or will not be
	phaseEnded                   // the client has all of the reply, or has left
)

// NewReply begins the reply to the request.
func (r *Request) NewReply(m api.Mode) api.Reply { return r.newReply(m) }

func (r *Request) newReply(m api.Mode) *Reply {
	reply := &Reply{request: r, mode: m, events: newEventWriter(r.Options)}
	reply.output = output{request: r.Request, events: &reply.events, mode: m, answered: -1, pages: r.Tools.Pages.With(item.Pages{})}
	reply.model = modelCalls{usage: continued(r.Storage.Continued)}
	reply.tools = toolRuns{output: &reply.output, servers: r.Services.Servers}
	reply.object = responseObject{request: r.Request, output: &reply.output, model: &reply.model, stored: r.Storage.Wanted}
	if r.Compaction != nil {
		reply.compaction = &compaction{Compaction: r.Compaction}
	}
	if r.Options.Messages {
		reply.model.messages = &messages{}
	}
	if r.Turn != nil {
		reply.model.begin(r.Turn, reply.event)
	}
	return reply
}

// Step begins the next step, once the step before it is complete, and appends what
// the client gets of it. In api.SingleCall mode it is called when the model call has
// ended. An error fails the reply.
func (r *Reply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	r.events.Dst = dst
	r.begin()
	step, err := r.step()
	dst, r.events.Dst = r.events.Dst, nil
	return dst, step, err
}

func (r *Reply) step() (api.Step, *apierror.Error) {
	if r.phase == phaseOpen {
		step, err := r.nextStep()
		if err != nil || step.Call != nil || len(step.Jobs) > 0 {
			return step, err
		}
		if err := r.finish(); err != nil {
			return api.Step{}, err
		}
	}
	if r.phase == phaseFinished {
		return r.commitStep(), nil
	}
	return api.Step{}, nil
}

// Push takes a chunk of the model call being made, and appends what the client gets
// of it: whole server-sent events, or nothing if the client wants one object.
func (r *Reply) Push(dst []byte, chunk *engine.Chunk) ([]byte, *apierror.Error) {
	if r.phase > phaseOpen {
		return dst, nil
	}
	if err := chunk.Refusal(1); err != nil {
		return dst, err
	}
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		r.model.usage.last().cached = chunk.Usage.CachedTokens
		r.model.reader.Cached(chunk.Usage)
	}
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}
	r.events.Dst = dst
	r.begin()
	err := r.model.push(chunk)
	r.closeDelta()
	if err == nil {
		err = r.checkLogprobs()
	}
	dst, r.events.Dst = r.events.Dst, nil
	return dst, err
}

// Done reports whether nothing that the engine may still send can change the reply.
func (r *Reply) Done() bool {
	reader := r.model.reader
	return reader != nil && reader.Finish() != turn.FinishNone && reader.Early()
}

// JobDone takes what came of the i-th job of the step. Items are completed in their
// order.
func (r *Reply) JobDone(dst []byte, i int, result any, err error) []byte {
	if i >= len(r.steps.jobs) {
		return dst // of a step that the end of the reply has dropped
	}
	r.events.Dst = dst
	r.steps.jobs[i].done(result, err)
	dst, r.events.Dst = r.events.Dst, nil
	return dst
}

// Fail makes the reply end with an error. The last event of a stream says that the
// response failed, and has what there is of it; so has the stored response. Of a
// whole object nothing has been sent, and nothing is stored.
//
// An error that comes while the end of the response is being stored is the end that
// the client gets, but is not stored any more.
func (r *Reply) Fail(dst []byte, err *apierror.Error) []byte {
	r.steps.jobs = nil
	switch {
	case r.phase == phaseCommitting:
		r.giveUpCommit()
		r.ending = ending{status: item.StatusFailed, err: err}
	case r.phase > phaseOpen:
	default:
		r.events.Dst = dst
		r.begin()
		if r.events.stream {
			r.closeDelta()
			r.cutItems()
		}
		r.phase, r.ending = phaseFinished, ending{status: item.StatusFailed, err: err}
		dst, r.events.Dst = r.events.Dst, nil
	}
	return dst
}

// giveUpCommit ends the wait for the commit. How a background response is stored is
// not known then, so that its stream gets no end here.
func (r *Reply) giveUpCommit() {
	r.phase = phaseCommitted
	if r.request.Options.Background {
		r.lost = errors.New("the reply ended before the store had answered")
	}
}

// End writes the last event of a stream or the whole object, after a step without a
// call or jobs. An error takes the place of a whole object. A background response
// that another process has ended has no end here: see [Reply.Lost].
func (r *Reply) End(dst []byte) ([]byte, *apierror.Error) {
	if r.phase == phaseCommitting {
		r.giveUpCommit()
	}
	ended := r.phase == phaseEnded || r.lost != nil
	r.phase = phaseEnded
	switch {
	case ended:
		return dst, nil
	case r.ending.err != nil && !r.request.Options.Stream:
		return dst, r.ending.err
	}
	r.events.Dst = dst
	r.writeEnd(&r.ending)
	dst, r.events.Dst = r.events.Dst, nil
	return dst, nil
}

// Cancel ends the reply because the client has left. A stream is stored with what
// there is of it, unless its end is being stored already. Of a whole object the
// client knows no id.
func (r *Reply) Cancel() []api.Job {
	was := r.phase
	r.phase, r.steps.jobs = phaseEnded, nil
	var jobs []api.Job
	if k := r.model.keep(); k != nil {
		jobs = append(jobs, k)
	}
	if !r.request.Options.Stream || was == phaseNew || was > phaseFinished {
		return jobs
	}
	if was == phaseOpen {
		r.cutItems()
		r.ending = ending{status: item.StatusCancelled}
	}
	if c := r.newCommit(); c != nil {
		jobs = append(jobs, c)
	}
	return jobs
}

// Fault is what went wrong without an error for the client, for the log; nil if
// nothing did.
func (r *Reply) Fault() error {
	return errors.Join(r.fault, r.output.fault, r.model.fault, r.tools.fault)
}

// Summary is what the reply has come to so far.
func (r *Reply) Summary() turn.Summary { return r.model.summary() }

// ToolCalls is how many calls of tools the reply has made, and how many accesses to
// tool servers, calls and lists, failed.
func (r *Reply) ToolCalls() (made, failed int) { return r.tools.made, r.tools.failed }

// Turn is the turn of the model call being made; nil before the first one.
func (r *Reply) Turn() *turn.Turn { return r.request.Turn }

// Start says that the first events of a background response are stored already.
func (r *Reply) Start() {
	r.phase = phaseOpen
	r.events.Sequence = r.request.queued
}

// Sequence is the number of the stream's next event.
func (r *Reply) Sequence() int { return r.events.Sequence }

// Ending reports whether how the response has ended is being stored.
func (r *Reply) Ending() bool { return r.phase == phaseCommitting }

// Lost is why a background response could not be stored as it has ended; nil if it
// could. Its stream has no end of ours then.
func (r *Reply) Lost() error { return r.lost }

// Text is the text of the item that is being written, for measurements that keep it from
// growing; nil between items.
func (r *Reply) Text() *[]byte {
	if r.output.item == nil {
		return nil
	}
	return &r.output.item.Text
}

// event takes one event of the turn.
func (r *Reply) event(e turn.Event) {
	if r.compaction != nil {
		r.summary.event(e)
		r.compaction.inline.grown(r, e)
		return
	}
	if e.Kind == turn.Reasoning && r.request.Options.HideReasoning {
		return
	}
	switch e.Step {
	case turn.Start:
		r.output.start(e)
	case turn.Delta:
		r.output.text(e)
	case turn.End:
		r.endItem(e.Cut)
	}
}

// endItem completes the item that is being written; cut says that the engine ended
// it.
func (r *Reply) endItem(cut bool) {
	it := r.output.endText()
	switch {
	case cut && it.Kind.OnlyWhole():
	case it.Kind == item.Unknown:
		r.steps.unknown++
		r.output.addUnknown(it)
	case it.Kind == item.MCPApproval:
		r.steps.stopFor(clientActs)
		r.output.addWhole(it)
	case it.Kind == item.ToolSearch:
		r.runSearch(it)
	case it.Kind.HasAction():
		r.steps.stopFor(clientActs)
		r.output.addAction(it)
	case it.hosted != nil && !cut:
		r.tools.call(it)
	default:
		if it.Kind == item.Function || it.Kind == item.Custom {
			r.steps.stopFor(clientActs)
		}
		r.output.addText(it, cut)
	}
}

// cutItems adds the items that have begun to those of the response, as far as they
// have come. No event says that they are complete: clients make the calls that are.
func (r *Reply) cutItems() {
	r.tools.cut()
	if it := r.output.item; it != nil && !it.Kind.OnlyWhole() {
		r.output.add(it, item.StatusIncomplete)
	}
	r.output.item = nil
}
