package reply

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply has several model calls if the model calls nothing but tools that the filter
// answers: it runs them, or tells the model that there is no such tool. The next turn's
// prompt is this one's with what the model has written and the results.

// current is the turn that is being made.
type current struct {
	turn  *turn.Turn // nil before the first
	due   bool       // its model call has not been made
	aside *aside     // nil: its output is the reply's

	items     []turn.Item // what the model has done, and the results; see [Machine.remembers]
	runs      int         // calls that the filter makes
	byEncoder int         // calls that the encoder has answered
	unknown   int         // calls of tools that do not exist
}

// answered returns how many calls of the turn have a result that is not the client's.
func (c *current) answered() int { return c.runs + c.byEncoder + c.unknown }

// aside is a model call whose output is not the reply's.
type aside struct {
	output func(dst []byte, e turn.Event) []byte
	then   Stage
}

// Call is what one model call has come to.
type Call struct {
	Prompt int
	// Cached is how much of the prompt the engine had in its cache; engine.Unknown if it
	// does not report that.
	Cached    int
	Output    int
	Reasoning int // of the output: content of the chain of thought
	Aside     bool
}

// Stop is why no model call follows one whose calls are answered: a set of reasons.
type Stop uint8

// The reasons.
const (
	// ClientActs: there are also calls that the client makes.
	ClientActs Stop = 1 << iota
	// OutOfTurns: the reply has as many model calls as it may have.
	OutOfTurns
	// OutOfRoom: the reply has as many tokens as it may have.
	OutOfRoom
	// ContextFull: the context has no room for the results.
	ContextFull
	// Interrupted: the client has interrupted the reply.
	Interrupted
)

// Has reports whether one of the reasons is among s.
func (s Stop) Has(reasons Stop) bool { return s&reasons != 0 }

// Stop returns why no further model call was made; 0: the model has not asked for one.
func (m *Machine) Stop() Stop { return m.stop }

// Begin begins a turn: what is pushed from its model call on is its output. It is for
// stages and their jobs, and for what begins the reply.
func (m *Machine) Begin(t *turn.Turn) { m.beginTurn(t, nil) }

// BeginAside begins a turn whose output is not the reply's, such as a summary of the
// conversation: output takes its events. then is the stage that follows the model call.
func (m *Machine) BeginAside(t *turn.Turn, output func(dst []byte, e turn.Event) []byte, then Stage) {
	m.beginTurn(t, &aside{output, then})
}

// BeginUnread begins the one model call of a reply without output, see [turn.Turn.LeaveUnread].
func (m *Machine) BeginUnread(t *turn.Turn) {
	m.BeginAside(t,
		func(dst []byte, _ turn.Event) []byte { return dst },
		func(dst []byte) ([]byte, Step, *apierror.Error) { return dst, Step{}, nil })
}

func (m *Machine) beginTurn(t *turn.Turn, a *aside) {
	// What the turn before has come to is only counted from now on.
	m.count()
	for i := range m.choices {
		if r := m.choices[i].reader; r != nil {
			r.AddTo(&m.earlier)
		}
	}

	// The call of a reply of one call is being made before the reply begins.
	m.current = current{turn: t, due: m.phase != calling, aside: a}
	m.calls = append(m.calls, Call{Prompt: t.PromptTokens(), Cached: engine.Unknown, Aside: a != nil})
	m.Note(t.Fault())

	for i := range m.choices {
		c := &m.choices[i]
		emit := c.events()
		if a != nil {
			emit = func(e turn.Event) { m.dst = a.output(m.dst, e) }
		}
		c.reader, c.state = t.NewReader(emit), generating
	}

	// With several choices there are no tools of the filter's.
	if a == nil && m.o.Tools != nil && m.o.Tools.Corrected(m.last()) {
		m.choices[0].reader.Corrected()
	}
}

// last reports whether no turn can follow the current one.
func (m *Machine) last() bool { return m.o.Mode != api.Loop || len(m.calls) >= m.o.Turns }

// remembers reports whether what the model does is remembered for the next turn.
func (m *Machine) remembers() bool { return m.o.Tools != nil && m.o.NextTurn == nil && !m.last() }

// remember adds a part that is complete to the items of the turn.
func (m *Machine) remember(p *Part) {
	item := turn.Item{Kind: p.Kind, Text: string(p.Whole)}
	if call := p.Call; call != nil {
		item.CallID, item.Namespace, item.Name, item.Builtin = call.ID, call.Namespace, call.Name, call.Builtin
	}
	m.current.items = append(m.current.items, item)
}

// called takes a call that is complete, or was cut.
func (m *Machine) called(p *Part, cut bool) {
	switch {
	case p.Maker == ByNobody:
		m.current.unknown++
		m.result(p.Call, turn.NoSuchTool(p.Call.Name))
	case cut:
	case p.Maker == ByEncoder:
		m.current.byEncoder++
	case p.Maker == ByFilter:
		m.runs.called(m, p)
	}
}

// result remembers the result of a call. It returns where in the items it is; -1 if
// nothing is remembered.
func (m *Machine) result(call *turn.CalledTool, text string) int {
	if !m.remembers() {
		return -1
	}
	m.current.items = append(m.current.items, turn.Item{Kind: turn.Result, CallID: call.ID, Text: text, Hosted: true})
	return len(m.current.items) - 1
}

// compact makes the arguments of the last item what later requests are going to have:
// clients send them back as JSON of their own.
func (c *current) compact() {
	call := &c.items[len(c.items)-1]
	if isCode := call.Builtin && call.Name == ""; !isCode && jsontext.IsObject(call.Text) {
		call.Text = string(jsontext.AppendCompact(nil, call.Text))
	}
}

// nextTurn begins the turn in which the model has the results of its calls, or returns the
// job that makes it. It does neither if the reply has no further one.
func (m *Machine) nextTurn() ([]Job, *apierror.Error) {
	// A model call with several choices has no next one, and so no answered calls.
	choice, answered := &m.choices[0], m.current.answered()
	// What was cut by its length is not what the model wanted to say.
	if answered == 0 || choice.Finish() == turn.FinishLength {
		return nil, nil
	}

	// All reasons are noted: which of them counts is the API's to say.
	if choice.Calls() != answered {
		m.stop |= ClientActs
	}
	if m.last() {
		m.stop |= OutOfTurns
	}
	maxTokens := m.o.MaxTokens
	if maxTokens > 0 {
		if maxTokens -= m.written(); maxTokens <= 0 {
			m.stop |= OutOfRoom
		}
	}
	if m.stop != 0 {
		return nil, nil
	}

	return m.makeNextTurn(maxTokens)
}

// NextTurn is what the next turn is made of.
type NextTurn struct {
	// Items are what the model has done in the current turn, and the results of its calls.
	Items []turn.Item
	// Take takes the turn, or the error that says why there is none. It returns the turn
	// that begins; nil without an error: the context has no room for it, and the reply ends
	// with what there is.
	Take func(next *turn.Turn, err *apierror.Error) (*turn.Turn, *apierror.Error)
}

// makeNextTurn makes the next turn, or returns the job that does.
func (m *Machine) makeNextTurn(maxTokens int) ([]Job, *apierror.Error) {
	plan := NextTurn{m.current.items, m.takeTurn}
	if m.o.NextTurn != nil {
		var err *apierror.Error
		if plan, err = m.o.NextTurn(); err != nil {
			return nil, err
		}
	}

	job := &nextTurnJob{m.current.turn, plan.Items, maxTokens}
	if turn.Quick(plan.Items) {
		return nil, m.beginNext(plan.Take(job.turn.Continue(context.Background(), job.items, job.maxTokens)))
	}

	return []Job{{Do: job, Done: func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
		var failure *apierror.Error
		if err != nil {
			failure = Failure(err)
		}
		next, _ := result.(*turn.Turn)
		return dst, m.beginNext(plan.Take(next, failure))
	}}}, nil
}

// takeTurn is Take of the items that the machine has seen.
func (m *Machine) takeTurn(next *turn.Turn, err *apierror.Error) (*turn.Turn, *apierror.Error) {
	// The client has seen what the tools have done, and tools may have changed something:
	// the reply ends with that, not with an error.
	if err != nil && err.Code == "context_length_exceeded" && m.current.runs > 0 {
		return nil, nil
	}
	return next, err
}

// beginNext begins the turn that was made, if there is one.
func (m *Machine) beginNext(next *turn.Turn, err *apierror.Error) *apierror.Error {
	switch {
	case err != nil:
		return err
	case next == nil:
		m.stop = ContextFull
	default:
		m.Begin(next)
	}
	return nil
}

// nextTurnJob is the job that makes the next turn of long items. It uses nothing of the
// machine, which may end meanwhile.
type nextTurnJob struct {
	turn      *turn.Turn
	items     []turn.Item
	maxTokens int
}

// Do implements [api.Job].
func (j *nextTurnJob) Do(ctx context.Context) (any, error) {
	next, err := j.turn.Continue(ctx, j.items, j.maxTokens)
	if err != nil {
		return nil, err
	}
	return next, nil
}

// count brings the model call being made up to date.
func (m *Machine) count() {
	if len(m.calls) == 0 {
		return
	}

	call := &m.calls[len(m.calls)-1]
	call.Output, call.Reasoning = 0, 0
	for i := range m.choices {
		counts := m.choices[i].reader.Counts()
		call.Output += counts.Output
		call.Reasoning += counts.Reasoning
	}
}

// Calls returns what each model call has come to so far. The last one is being made.
func (m *Machine) Calls() []Call {
	m.count()
	return m.calls
}

// written returns how many tokens of the reply the model calls have written.
func (m *Machine) written() int {
	written := 0
	for _, call := range m.Calls() {
		if !call.Aside {
			written += call.Output
		}
	}
	return written
}

// Total returns what the model calls have come to together. Its cached tokens are
// unknown as long as those of the last call are.
func (m *Machine) Total() Call {
	var total Call
	for _, call := range m.Calls() {
		total.Prompt += call.Prompt
		total.Cached += max(call.Cached, 0)
		total.Output += call.Output
		total.Reasoning += call.Reasoning
	}
	if n := len(m.calls); n == 0 || m.calls[n-1].Cached == engine.Unknown {
		total.Cached = engine.Unknown
	}
	return total
}

// Choice returns the i-th choice.
func (m *Machine) Choice(i int) *Choice { return &m.choices[i] }
