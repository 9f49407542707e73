package write

import (
	"errors"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// How a reply ends: it is known how, the response is stored so, and only then is the
// client told.
//
//	ending.status  committing  the reply                 who leaves this state
//	""             false       goes on                   Finish and Fail settle the end, Cancel
//	                                                     does without a client
//	set            false       has failed, or its end    Finish commits a failed one, End and
//	                           is or will not be stored  Cancel end the reply
//	set            true        waits for the commit      committed, and Fail and End, which do not
//	                                                     know what is stored

// lastStep is the [reply.Ending] of a response.
type lastStep struct{ e *encoder }

// Finish settles how a reply whose output is complete ends, and returns the commit. Of a
// reply that has failed, only the commit is left.
func (s *lastStep) Finish(dst []byte) ([]byte, []reply.Job, *apierror.Error) {
	e := s.e
	if e.ending.status == "" {
		e.events.Dst = dst
		e.settleEnd()
		dst = e.take()
	}

	var jobs []reply.Job
	if keep := e.output.keepSteps(); keep != nil {
		jobs = append(jobs, reply.Job{Do: keep})
	}

	c := e.newCommit()
	if c == nil {
		return dst, jobs, nil
	}

	e.committing = true

	return dst, append(jobs, reply.Job{
		Do: c, Done: func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
			e.committed(result, err)
			return dst, nil
		},
	}), nil
}

// settleEnd settles how a reply whose output is complete ends.
func (e *encoder) settleEnd() {
	// Of several reasons to stop, missing room counts most, then what the client has to do, then the
	// turns: a response that ends with a call of the client's is complete.
	e.ending = ending{status: item.StatusCompleted, at: e.request.Context.Now().Unix()}
	if e.request.Options.PrepareOnly {
		return
	}
	// What was cut is the last item, as clients expect it. A reply that ends before its first model
	// call has no choice yet.
	if e.request.Turn == nil || e.reply.Choice(0).Finish() != turn.FinishLength {
		e.output.carry()
	}
	stop := e.reply.Stop()
	switch why := e.reply.Interrupted(); {
	case why == api.Canceled:
		e.ending.status = item.StatusCancelled
	case why == api.Steered:
		e.ending.status, e.ending.reason = item.StatusIncomplete, string(api.Steered)
	case stop.Has(reply.OutOfRoom | reply.ContextFull), e.reply.Choice(0).Finish() == turn.FinishLength:
		e.ending.status, e.ending.reason = item.StatusIncomplete, "max_output_tokens"
	case stop.Has(reply.OutOfTurns) && !stop.Has(reply.ClientActs):
		e.ending.status = item.StatusIncomplete
	case e.output.count == 0:
		// The text is empty.
		e.output.start(turn.Answer, nil)
		e.endItem(false)
	}
}

// Fail makes the reply end with an error. The last event of a stream says that the
// response failed, and has what there is of it; so has the stored response. Of a
// whole object nothing has been sent, and nothing is stored.
//
// An error that comes while the end of the response is being stored is the end that
// the client gets, but is not stored any more.
func (s *lastStep) Fail(dst []byte, err *apierror.Error) (_ []byte, fails bool) {
	e := s.e
	switch {
	case e.committing:
		e.giveUpCommit()
	case e.ending.status != "":
		return dst, false
	case e.events.stream:
		// A client that tries again sends the items that it has.
		if e.output.item == nil {
			e.events.Dst = dst
			e.output.carry()
			dst = e.take()
		}
		e.cutItem()
	}

	e.ending = ending{status: item.StatusFailed, err: err}

	return dst, true
}

// Cancel stores what there is of a stream whose client has left, unless its end is being
// stored already. Of a whole object the client knows no id.
func (s *lastStep) Cancel() []api.Job {
	e := s.e
	if !e.request.Options.Stream || !e.begun || e.commitMade {
		return nil
	}

	if e.ending.status == "" {
		e.cutItem()
		e.ending = ending{status: item.StatusCancelled}
	}

	var jobs []api.Job
	if keep := e.output.keepSteps(); keep != nil {
		jobs = append(jobs, keep)
	}
	if c := e.newCommit(); c != nil {
		jobs = append(jobs, c)
	}

	return jobs
}

// giveUpCommit ends the wait for the commit. How a background response is stored is
// not known then, so that its stream gets no end here.
func (e *encoder) giveUpCommit() {
	e.committing = false
	if e.request.Options.Background {
		e.lost = errors.New("the reply ended before the store had answered")
	}
}

// Error ends a stream that has failed.
func (e *encoder) Error(dst []byte, _ *apierror.Error) []byte { return e.End(dst) }

// End writes the last event of a stream. A background response that another process has
// ended has no end here: see [Reply.Lost].
func (e *encoder) End(dst []byte) []byte {
	if e.committing {
		e.giveUpCommit()
	}
	if e.lost != nil {
		return dst
	}

	e.events.Dst = dst
	e.writeEnd(&e.ending)
	return e.take()
}

// Object writes the whole object. An error takes its place, also one of the commit.
func (e *encoder) Object(dst []byte) ([]byte, *apierror.Error) {
	if e.ending.err != nil {
		return dst, e.ending.err
	}
	return e.End(dst), nil
}

// newCommit is the job that stores how the response has ended; nil where it is not
// stored. An error in the place of a whole object is not.
func (e *encoder) newCommit() *commit {
	q := e.request
	s := &q.Storage
	e.commitMade = true
	if !s.Wanted && !s.Local || q.Continues() && !e.ending.own() || e.ending.err != nil && !q.Options.Stream {
		return nil
	}

	version := s.Version + 1
	if q.Options.Background {
		// The first is the live response.
		version++
	}

	c := &commit{
		services: q.Services, request: q.Request, background: q.Options.Background, local: s.Local,
		lock: q.Lock, extends: e.ending.own(),
		response: &store.Response{
			ID: q.ResponseID, Previous: s.Previous, Conversation: q.Lock.ID(), Version: version,
			Object: e.object.appendStored(nil, &e.ending),
			Input:  s.Input, Output: e.output.items(),
		},
	}
	// From here on the commit releases the lock, also if it outlives the reply.
	if q.Lock != nil {
		q.Lock.Committing.Store(true)
		apart := e.object
		apart.apart = true
		c.apart = apart.appendStored(nil, &e.ending)
	}

	return c
}

// committed takes what came of the commit.
func (e *encoder) committed(result any, err error) {
	done, ok := result.(committed)
	switch {
	case ok:
	case err == nil:
		// The job was dropped by the end of the reply.
		return
	default:
		done.err = err
	}

	e.committing, e.object.apart = false, done.apart
	e.note(done.fault)
	if done.err == nil {
		return
	}

	e.object.stored = false
	e.note(fmt.Errorf("store the response: %w", done.err))
	switch {
	// Its stream gets no end from here: see Reply.Lost.
	case e.request.Options.Background:
		e.lost = done.err
	// The client has its answer all the same, with store: false in it.
	case !e.request.Continues():
	case errors.Is(done.err, store.ErrConflict):
		e.ending = ending{status: item.StatusFailed, err: request.TurnConflict(e.request.ResponseID)}
	case errors.Is(done.err, store.ErrNotFound):
		e.ending = ending{status: item.StatusFailed, err: request.TurnGone(e.request.ResponseID)}
	}
}
