package write

import (
	"errors"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply is a loop of steps: a model call, the tools that it calls, the next model
// call. Before the first model call there can be a preflight. The last step stores
// the response.

// steps is the state of the loop.
type steps struct {
	next stepFunc        // begins the next step; nil: the first
	jobs []stepJob       // of the step
	err  *apierror.Error // of a job of the step

	prompted int  // how many of the made items the prompt has
	unknown  int  // calls of the turn to tools that do not exist
	searches int  // for tools, that the turn has called and that were run here
	stop     stop // why no model call follows
}

// stepFunc begins a step of a reply.
type stepFunc func(*Reply) (api.Step, *apierror.Error)

// stepJob is a job of a step, with the function that takes what came of it.
type stepJob struct {
	job  api.Job
	done func(result any, err error)
}

// stop is why no model call follows the last one. Of two reasons the greater one
// counts.
type stop uint8

const (
	noStop     stop = iota
	maxTurns        // the response has as many model calls as it may have
	clientActs      // a call is the client's to make or to approve
	maxTokens       // the output has as many tokens as it may have
)

func (s *steps) stopFor(reason stop) { s.stop = max(s.stop, reason) }

// nextStep begins the next step of the loop.
func (r *Reply) nextStep() (api.Step, *apierror.Error) {
	if err := r.steps.err; err != nil {
		return api.Step{}, err
	}
	if r.steps.next == nil {
		return r.firstStep()
	}
	return r.steps.next(r)
}

// runJobs is the step of some jobs, and of keeping the reasoning of the answer before
// it. next follows, at once if there are none.
func (r *Reply) runJobs(jobs []stepJob, next stepFunc) (api.Step, *apierror.Error) {
	r.steps.next, r.steps.jobs = next, r.withKeep(jobs)
	if len(r.steps.jobs) == 0 {
		return next(r)
	}
	return r.steps.step(), nil
}

// withKeep adds the job that keeps the reasoning of the last answer, if there is one.
// It is the first: it is done also if the run ends while other jobs wait.
func (r *Reply) withKeep(jobs []stepJob) []stepJob {
	k := r.model.keep()
	if k == nil {
		return jobs
	}
	keep := stepJob{k, func(_ any, err error) { r.fault = errors.Join(r.fault, err) }}
	return append([]stepJob{keep}, jobs...)
}

// step is the step of the jobs.
func (s *steps) step() api.Step {
	step := api.Step{Jobs: make([]api.Job, len(s.jobs))}
	for i := range s.jobs {
		step.Jobs[i] = s.jobs[i].job
	}
	return step
}

// jobError is the error of a job for the client.
func jobError(err error) *apierror.Error {
	var apiErr *apierror.Error
	if errors.As(err, &apiErr) {
		return apiErr
	}
	return apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(err)
}

// firstStep is the model call, or the first step of the preflight.
func (r *Reply) firstStep() (api.Step, *apierror.Error) {
	switch p := r.request.Preflight; {
	case r.mode == api.SingleCall:
		return api.Step{}, nil // the model call has been made
	case p != nil:
		return r.newPreflight(p).firstStep(r)
	}
	return r.callStep()
}

// callStep is a model call.
func (r *Reply) callStep() (api.Step, *apierror.Error) {
	r.steps.next, r.steps.jobs = (*Reply).calledStep, nil
	if r.compaction == nil {
		r.model.reader.Corrected()
	}
	return api.Step{Call: r.request.Turn.Engine}, nil
}

// calledStep ends a model call, and runs the tools that it calls.
func (r *Reply) calledStep() (api.Step, *apierror.Error) {
	if err := r.closeCall(); err != nil {
		return api.Step{}, err
	}
	if c := r.compaction; c != nil && c.inline != nil {
		return c.inline.endStep(r)
	}
	if r.model.finish() == turn.FinishLength {
		r.steps.stopFor(maxTokens)
		r.steps.unknown, r.steps.searches = 0, 0 // calls that are complete are made all the same
	}
	if len(r.tools.pending)+r.steps.unknown+r.steps.searches == 0 {
		return api.Step{}, nil
	}
	return r.runJobs(r.tools.jobs(), (*Reply).continueStep)
}

// closeCall ends the answer of a model call.
func (r *Reply) closeCall() *apierror.Error {
	if r.model.reader == nil {
		return nil
	}
	err := r.model.reader.Close()
	r.closeDelta()
	return err
}

// continueStep is the next model call, unless the client has to act first or a limit
// is reached.
func (r *Reply) continueStep() (api.Step, *apierror.Error) {
	room := 0
	if most := r.request.MaxOutput; most > 0 {
		r.model.count()
		if room = most - r.model.usage.total().output + r.model.compacted; room <= 0 {
			r.steps.stopFor(maxTokens)
		}
	}
	if r.steps.stop == noStop && r.model.usage.calls() >= r.request.Context.Limits.Turns {
		r.steps.stopFor(maxTurns)
	}
	if r.steps.stop != noStop {
		return api.Step{}, nil
	}
	items, err := r.newItems()
	if err != nil {
		return api.Step{}, err
	}
	t, err := r.request.Turn.Continue(items, room)
	if err != nil && err.Code == "context_length_exceeded" { // what the tools have done stays
		r.steps.stopFor(maxTokens)
		return api.Step{}, nil
	}
	if err != nil {
		return api.Step{}, request.OfInput(err)
	}
	r.steps.unknown, r.steps.searches = 0, 0
	r.beginCall(t)
	return r.callStep()
}

// beginCall begins a model call: what is pushed from now on is its answer.
func (r *Reply) beginCall(t *turn.Turn) {
	r.request.Turn = t
	r.model.begin(t, r.event)
}

// newItems are the reply's items that the prompt does not have yet.
func (r *Reply) newItems() ([]turn.Item, *apierror.Error) {
	made := r.output.made[r.steps.prompted:]
	r.steps.prompted = len(r.output.made)
	return r.request.Conversation.Items(made)
}
