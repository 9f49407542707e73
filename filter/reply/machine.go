package reply

import (
	"errors"
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Options are what a reply is made of.
type Options struct {
	Encoder Encoder
	// Stream is whether the client gets events.
	Stream bool
	// Early is that a stream begins with the first step, not with the first token.
	Early bool
	Mode  api.Mode

	// Turn is the first turn; nil: a stage of First calls [Machine.Begin].
	Turn *turn.Turn
	// First is the first stage before the model calls; nil: there is none.
	First Stage
	// Choices is the number of choices; 0: one. Several have one model call.
	Choices int

	// Turns is the most model calls.
	Turns int
	// MaxTokens is the most tokens of all model calls together; 0: as many as the
	// context leaves.
	MaxTokens int
	// MaxRuns is the most calls that the filter makes; 0: any number.
	MaxRuns int

	// Tools is nil where the client makes all calls. Then there is one model call.
	Tools Tools
	// Run makes the run of a complete call that is [ByFilter]. refused is its result if the
	// call breaks a bound and is not made; nil: it may be made. Run is nil where there is no
	// such call.
	Run func(p *Part, refused *tools.Result) *Run
	// NextTurn returns what the turn is made of that follows the current one. If it is nil,
	// the machine makes the turn of what it has seen.
	NextTurn func() (NextTurn, *apierror.Error)

	Settler Settler // nil: the encoder has none
	Ending  Ending  // nil: the output is followed by the end
}

// phase is how far a reply has come.
//
//	phase      the reply waits for                who leaves it, and where to
//	preparing  the jobs of a stage                Step: calling, once no stage is left
//	                                              Step: finishing, if no stage has begun a turn
//	calling    the engine's output                Step: running, once the engine has ended
//	                                              Step: preparing, after a model call aside
//	running    the results of the filter's calls  Step: preparing, with the next turn or the job
//	                                              that makes it
//	                                              Step: finishing, if there is none
//	finishing  jobs that later requests need      nobody but End and Cancel
//	ended      nothing                            nobody
//
// From each phase Fail lets the next Step go to finishing, and End and Cancel end the
// reply. A reply whose one model call Envoy makes begins with calling. Jobs of a step that
// Fail or Cancel has dropped are done, but their results are not taken.
type phase uint8

const (
	preparing phase = iota
	calling
	running
	finishing
	ended
)

// Machine makes a reply. It is an [api.Reply], and is used by one goroutine.
//
// It is large because each phase, each event of a run and each question of an encoder is
// a method.
type Machine struct {
	o     Options
	phase phase
	dst   []byte // while a method runs

	// The step: what is done, and what follows.
	stage Stage
	jobs  []Job
	// failed is the error of a job of the step, with which the next step fails.
	failed *apierror.Error

	// failure is what the reply ends with; nil: it does not fail. fault is for the log.
	failure *apierror.Error
	fault   error

	// The model call, and what all of them have come to.
	choices     []Choice
	current     current
	calls       []Call
	earlier     turn.Summary // of the calls before the current one
	stop        Stop
	interrupted api.Interruption // "": the client has not
	fingerprint string

	runs runs

	// inline is for what nearly every reply has, so that it takes no allocations of its own.
	inline struct {
		choices [1]Choice
		calls   [1]Call
	}
}

// New begins a reply. In the mode [api.SingleCall] the call of the first turn is being
// made already.
func New(o Options) *Machine {
	m := &Machine{o: o, stage: o.First}
	// The stages can hold all of a decoded request: they are forgotten as they are run.
	m.o.First = nil

	if m.choices = m.inline.choices[:]; o.Choices > 1 {
		m.choices = make([]Choice, o.Choices)
	}
	m.calls = m.inline.calls[:0]
	for i := range m.choices {
		c := &m.choices[i]
		c.Index, c.machine, c.text = i, m, c.inline[:0]
	}

	if o.Mode == api.SingleCall {
		m.phase = calling
	}
	if o.Turn != nil {
		m.Begin(o.Turn)
	}
	return m
}

// Step begins the next step, once the step before it is complete. In the mode
// [api.SingleCall] the first one follows the model call. An error fails the reply.
func (m *Machine) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	m.dst = dst
	step, err := m.step()
	dst, m.dst = m.dst, nil

	return dst, step, err
}

func (m *Machine) step() (api.Step, *apierror.Error) {
	if m.phase >= finishing {
		return api.Step{}, nil
	}
	if m.o.Early {
		m.begin(&m.choices[0])
	}

	if m.failure == nil {
		step, err := m.next()
		if err != nil || step.Call != nil || len(step.Jobs) > 0 {
			return step, err
		}
	}

	var jobs []Job
	if m.o.Ending != nil {
		var err *apierror.Error
		// The phase stays as it is on an error, so that Finish is called again for the
		// reply that has failed.
		if m.dst, jobs, err = m.o.Ending.Finish(m.dst); err != nil {
			return api.Step{}, err
		}
	}
	m.phase = finishing

	return m.start(m.withKept(jobs)), nil
}

// next goes through the phases until there is something to do outside. An empty step is
// that the output is complete.
func (m *Machine) next() (api.Step, *apierror.Error) {
	if err := m.failed; err != nil {
		return api.Step{}, err
	}

	for {
		var jobs []Job
		var err *apierror.Error
		switch m.phase {
		case preparing:
			if m.stage == nil {
				return m.call(), nil
			}
			jobs, err = m.runStage()
		case calling:
			jobs, err = m.endCall()
		case running:
			// A turn is called as the first one is: it has no stages of its own. Without one the
			// reply ends, as it does if a stage has begun none.
			jobs, err = m.nextTurn()
			m.phase = preparing
		}
		if err != nil || len(jobs) > 0 {
			return m.start(jobs), err
		}
	}
}

// call is the model call of the turn that has begun; an empty step if none has.
func (m *Machine) call() api.Step {
	if !m.current.due || m.stop.Has(Interrupted) {
		return api.Step{}
	}
	m.phase, m.current.due, m.jobs = calling, false, nil

	return api.Step{Call: m.current.turn.Engine}
}

// endCall ends the model call, and returns the jobs of the filter's calls.
func (m *Machine) endCall() ([]Job, *apierror.Error) {
	if err := m.closeChoices(); err != nil {
		return nil, err
	}
	if aside := m.current.aside; aside != nil {
		m.phase, m.stage, m.current.aside = preparing, aside.then, nil
		return nil, nil
	}

	// Calls that are complete are made also if the output was cut after them: clients have
	// seen them, and wait for their results.
	m.phase = running
	jobs := m.runJobs()

	// Of a turn that only told the model of unknown tools clients see no call, and send
	// none back: its reasoning is kept for nobody. At the end of the reply it is kept with
	// the rest.
	if m.current.runs > 0 || m.current.byEncoder > 0 && m.choices[0].reader.Finish() != turn.FinishLength {
		jobs = m.withKept(jobs)
	}
	return jobs, nil
}

// Done reports whether nothing that the engine may still send can change the reply, so
// that the model call can be dropped.
func (m *Machine) Done() bool {
	if m.failure != nil {
		return true
	}

	// If no choice has ended before the engine says so, its closing event is awaited: it
	// has the number of cached tokens.
	early := false
	for i := range m.choices {
		c := &m.choices[i]
		if c.reader == nil || c.state == generating {
			return false
		}
		early = early || c.reader.Early()
	}
	return early
}

// Fail makes the reply end with an error; without an [Ending] the first one counts.
// Jobs that are being done are dropped.
func (m *Machine) Fail(dst []byte, err *apierror.Error) []byte {
	if m.phase == ended {
		return dst
	}
	m.drop()

	// A second error, such as a deadline, comes while the reply is failing: the first one
	// says why.
	if m.o.Ending == nil {
		if m.failure == nil {
			m.failure = err
		}
		return dst
	}

	m.dst = dst
	if m.o.Early && m.phase < finishing {
		m.begin(&m.choices[0])
	}
	var fails bool
	if m.dst, fails = m.o.Ending.Fail(m.dst, err); fails {
		m.failure = err
	}
	dst, m.dst = m.dst, nil
	return dst
}

// End writes the last events of a stream, or the whole object. A stream that has failed
// ends with an error; the error of a whole object is returned.
func (m *Machine) End(dst []byte) ([]byte, *apierror.Error) {
	if m.phase == ended {
		return dst, nil
	}
	m.phase = ended

	switch {
	case m.failure != nil && m.o.Stream:
		return m.o.Encoder.Error(dst, m.failure), nil
	case m.failure != nil:
		return dst, m.failure
	case !m.o.Stream:
		return m.o.Encoder.Object(dst)
	}

	// These were held back: the reply had another turn, or something to keep first.
	for i := range m.choices {
		if c := &m.choices[i]; m.o.Settler != nil && c.state != finishSent {
			dst = m.o.Settler.Finish(dst, c)
		}
	}
	return m.o.Encoder.End(dst), nil
}

// Interrupt implements [api.Reply]. A reply with calls of tools that the client makes ends by
// itself, with calls that are whole: one that is cut would be lost.
func (m *Machine) Interrupt(why api.Interruption) bool {
	// What is canceled stays so: input that comes while its last job is done steers nothing any more.
	if m.phase >= finishing || m.failure != nil || m.interrupted == api.Canceled {
		return false
	}
	if why == api.Steered && m.phase == calling && m.current.aside == nil && m.choices[0].acts() {
		return false
	}
	m.stop |= Interrupted
	m.interrupted = why
	return true
}

// Interrupted returns why the client has interrupted the reply; "" if it has not.
func (m *Machine) Interrupted() api.Interruption { return m.interrupted }

// Cancel ends the reply because the client has left. It returns the jobs that are left
// to do all the same.
func (m *Machine) Cancel() []api.Job {
	if m.phase == ended {
		return nil
	}
	m.drop()
	m.phase = ended

	var jobs []api.Job
	for _, j := range m.withKept(nil) {
		jobs = append(jobs, j.Do)
	}
	if m.o.Ending != nil {
		jobs = append(jobs, m.o.Ending.Cancel()...)
	}
	return jobs
}

// drop drops the jobs of the step.
func (m *Machine) drop() {
	m.jobs = nil
	m.cutRuns()
}

// Summary returns what the reply has come to so far.
func (m *Machine) Summary() turn.Summary {
	// Adding the current turn must not change what the turns before it came to.
	s := m.earlier
	s.Repairs = maps.Clone(s.Repairs)
	s.Cached = engine.Unknown
	if m.current.turn == nil {
		return s
	}

	total := m.Total()
	s.Prompt, s.Cached, s.Finish = total.Prompt, total.Cached, m.choices[0].Finish()
	for i := range m.choices {
		m.choices[i].reader.AddTo(&s)
	}
	return s
}

// Fault returns what went wrong without an error for the client; nil if nothing did.
func (m *Machine) Fault() error { return m.fault }

// Note adds to what went wrong without an error for the client.
func (m *Machine) Note(fault error) { m.fault = errors.Join(m.fault, fault) }

// Turn returns the turn of the model call being made; nil before the first one.
func (m *Machine) Turn() *turn.Turn { return m.current.turn }

// ToolCalls implements [api.Reply]: how many calls the filter has made, and how many accesses
// to servers of tools, calls and lists, have failed.
func (m *Machine) ToolCalls() (made, failed int) { return m.runs.made, m.runs.failed }

// Ending implements [api.Reply]: a reply whose end is not stored has no such time.
func (m *Machine) Ending() bool { return false }

// Background implements [api.Reply]: a reply that is not stored has a client that waits for it.
func (m *Machine) Background() api.BackgroundReply { return nil }

// Fingerprint returns the engine's fingerprint; "" until it has one.
func (m *Machine) Fingerprint() string { return m.fingerprint }
