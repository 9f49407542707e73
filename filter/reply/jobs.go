package reply

import (
	"errors"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Job is a job of a step, with the function that takes what came of it.
type Job struct {
	Do api.Job
	// Done takes the job's result, or the error that says why there is none, and appends
	// what the client gets of it. Its own error fails the reply, once the other jobs of the
	// step are done. nil: a result is not needed, and an error is a fault.
	Done func(dst []byte, result any, err error) ([]byte, *apierror.Error)
}

// Stage is a step of an API's own, before a model call.
type Stage func(dst []byte) ([]byte, Step, *apierror.Error)

// Step is what a stage has to be done, side by side, and the stage that follows. Then is
// nil in the last one: what follows is the call of the turn that a stage or a job has
// begun, or the end of the reply if none has.
type Step struct {
	Jobs []Job
	Then Stage
}

// runStage begins the next stage, and returns its jobs.
func (m *Machine) runStage() ([]Job, *apierror.Error) {
	var step Step
	var err *apierror.Error
	m.dst, step, err = m.stage(m.dst)
	m.stage = step.Then
	if err != nil {
		return nil, err
	}

	return m.withKept(step.Jobs), nil
}

// start is the step of some jobs.
func (m *Machine) start(jobs []Job) api.Step {
	m.jobs = jobs
	if len(jobs) == 0 {
		return api.Step{}
	}

	step := api.Step{Jobs: make([]api.Job, len(jobs))}
	for i := range jobs {
		step.Jobs[i] = jobs[i].Do
	}
	return step
}

// JobDone takes what came of the i-th job of the step.
func (m *Machine) JobDone(dst []byte, i int, result any, err error) []byte {
	// The end of the reply has dropped the step.
	if i >= len(m.jobs) || m.phase == ended {
		return dst
	}

	done := m.jobs[i].Done
	if done == nil {
		m.Note(err)
		return dst
	}
	m.dst = dst
	var failed *apierror.Error
	if m.dst, failed = done(m.dst, result, err); failed != nil {
		m.failed = failed
	}
	dst, m.dst = m.dst, nil
	return dst
}

// withKept adds the jobs that keep the reasoning of choices that have ended in calls, once
// each. They come first: they are done also if the run ends while other jobs wait.
func (m *Machine) withKept(jobs []Job) []Job {
	var all []Job
	for i := range m.choices {
		c := &m.choices[i]
		if c.reader == nil || c.reader.Kept() == c.kept {
			continue
		}
		c.kept = c.reader.Kept()
		if c.kept != nil {
			all = append(all, Job{Do: c.kept})
		}
	}
	return append(all, jobs...)
}

// Failure is the error of a job for the client: the job's own, if it has one.
func Failure(err error) *apierror.Error {
	var failure *apierror.Error
	if errors.As(err, &failure) {
		return failure
	}
	return apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(err)
}
