package write

import (
	"errors"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// How a reply ends: it is finished, the response is stored, and only then is the
// client told how it has ended.

// finish ends a reply whose steps are done.
func (r *Reply) finish() *apierror.Error {
	if err := r.closeCall(); err != nil {
		return err
	}
	if err := r.endCompaction(); err != nil {
		return err
	}
	r.phase = phaseFinished
	r.ending = ending{status: item.StatusCompleted, at: r.request.Context.Now().Unix()}
	switch {
	case r.steps.stop == maxTokens, r.model.finish() == turn.FinishLength:
		r.ending.status, r.ending.reason = item.StatusIncomplete, "max_output_tokens"
	case r.steps.stop == maxTurns:
		r.ending.status = item.StatusIncomplete
	case r.output.count == 0:
		r.output.start(turn.Event{Step: turn.Start, Kind: turn.Answer}) // the text is empty
		r.endItem(false)
	}
	return nil
}

// commitStep is the last step: it stores how the response has ended, if it is stored.
func (r *Reply) commitStep() api.Step {
	var jobs []stepJob
	r.phase = phaseCommitted
	if c := r.newCommit(); c != nil {
		r.phase = phaseCommitting
		jobs = []stepJob{{c, r.committed}}
	}
	r.steps.jobs = r.withKeep(jobs)
	return r.steps.step()
}

// newCommit is the job that stores how the response has ended; nil where it is not
// stored. An error in the place of a whole object is not.
func (r *Reply) newCommit() *commit {
	q := r.request
	s := &q.Storage
	if !s.Wanted || q.Continues() && !r.ending.own() || r.ending.err != nil && !q.Options.Stream {
		return nil
	}
	version := s.Version + 1
	if q.Options.Background {
		version++ // the first is the live response
	}
	c := &commit{
		services: r.request.Services, request: q.Request, background: q.Options.Background, lock: q.Lock, extends: r.ending.own(),
		response: &store.Response{
			ID: q.ResponseID, Previous: s.Previous, Conversation: q.Lock.ID(), Version: version, Object: r.object.appendStored(nil, &r.ending),
			Input: s.Input, Output: r.output.items(),
		},
	}
	if q.Lock != nil {
		q.Lock.Committing.Store(true)
		apart := r.object
		apart.apart = true
		c.apart = apart.appendStored(nil, &r.ending)
	}
	return c
}

// committed takes what came of the commit.
func (r *Reply) committed(result any, err error) {
	done, ok := result.(committed)
	switch {
	case ok:
	case err == nil:
		return // of a job that the end of the reply has dropped
	default:
		done.err = err
	}
	r.phase, r.object.apart = phaseCommitted, done.apart
	r.fault = errors.Join(r.fault, done.fault)
	if done.err == nil {
		return
	}
	r.object.stored = false
	r.fault = errors.Join(r.fault, fmt.Errorf("store the response: %w", done.err))
	switch {
	case r.request.Options.Background:
		r.lost = done.err
	case !r.request.Continues():
	case errors.Is(done.err, store.ErrConflict):
		r.ending = ending{status: item.StatusFailed, err: request.TurnConflict(r.request.ResponseID)}
	case errors.Is(done.err, store.ErrNotFound):
		r.ending = ending{status: item.StatusFailed, err: request.TurnGone(r.request.ResponseID)}
	}
}
