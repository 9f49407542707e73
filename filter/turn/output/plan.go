package output

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Plan is how the output of a turn is read: what readers, watchers and checks know of the turn, and what
// they find out for the next one. [NewPlan] takes it from the request, Verify from the spec of the output,
// and the rest is set once there is a prompt.
type Plan struct {
	// Of the turn: limits, stop tokens and the number of choices count.
	Call *engine.Request
	// The header of the message that the reply continues, for the parser, and all of the message that the
	// prompt has; nil: the model begins its own message.
	Header, Begun []harmony.Token
	// What earlier choices have kept, and is due to be kept on.
	Due kept.Renewal
	// Who is told what comes of the model call; nil: nobody is.
	Listener Listener
	// That the reply's summary has; nil: prompts are not compared.
	Diagnosis *request.Diagnosis

	rc       *request.Context
	tools    *toolset.Set
	noCalls  bool
	oneCall  bool
	stops    stops
	keepStop bool
	watching watchRules
	// Nil: the arguments of calls are not asked for again.
	calls *callRules

	verifier verifier
	// Of the following turns; nil: they have the same spec.
	later *laterSpec

	// What the turn's choice keeps; nil while it goes on, and if it keeps nothing.
	keep *kept.Keep
}

// Listener is told what comes of a model call. It does no I/O.
type Listener interface {
	// Began says that the engine has begun to answer. It is called with each chunk.
	Began()
	// Wrote says what the model has written after the prompt, in a choice that has ended in calls; respelled:
	// later prompts have it in another form.
	Wrote(tokens []harmony.Token, respelled bool)
	// Called says that a choice has ended in calls, of which the first has this id.
	Called(id string)
	// Cached says what the engine reports of the prompt.
	Cached(usage *engine.Usage)
}

// NewPlan returns the plan of a turn.
func NewPlan(rc *request.Context, in *request.Input, tools *toolset.Set) Plan {
	plan := Plan{
		rc: rc, tools: tools, noCalls: in.NoCalls, oneCall: in.OneCall,
		stops: newStops(in.Stop), keepStop: in.KeepStop, watching: newWatchRules(rc, in),
	}
	if rc.Model.ToolArguments == request.ArgumentsRetry {
		plan.calls = newCallRules(tools)
	}
	return plan
}

// Verify has the output of the turn verified.
func (p *Plan) Verify(in *request.Input, spec *constraint.Spec, choice request.Choice) (err *apierror.Error) {
	p.verifier, err = newVerifier(p.rc, in, spec, choice, p.tools)
	return err
}

// VerifyLater has the output of the later turns of the reply verified, in which no call is required any more.
// first is the spec of the first turn.
func (p *Plan) VerifyLater(in *request.Input, first *constraint.Spec) (err *apierror.Error) {
	p.later, err = newLaterSpec(p.rc, in, first, p.tools)
	return err
}

// GoOn makes the plan, a copy of that of the turn before, the one of the reply's next turn, and sets the
// constraint of its model call.
func (p *Plan) GoOn(rc *request.Context, call *engine.Request, listener Listener) {
	p.rc, p.Call, p.Listener = rc, call, listener
	p.Begun, p.keep = nil, nil
	p.verifier.settled = Undecided

	// A call is required in the first turn only.
	if p.later != nil {
		call.Constraint = nil
		if !rc.Checked {
			call.Constraint, call.Advised = p.later.format, p.later.advised
		}
		p.later, p.verifier = nil, p.later.verifier
	}
}

// Kept returns what the turn's choice keeps; nil while it goes on, and if it keeps nothing.
func (p *Plan) Kept() *kept.Keep { return p.keep }

// Stops returns the strings at which the answer ends.
func (p *Plan) Stops() []string { return p.stops.texts }

// Reserved is how many of the bytes that were reserved for the turn are kept until the reply has ended.
func (p *Plan) Reserved() int {
	n := p.verifier.bytes
	if p.later != nil {
		n += p.later.verifier.bytes
	}
	return n
}
