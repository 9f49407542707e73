package turn

import (
	"cmp"
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Interruption is why the model is interrupted while it generates a choice.
type Interruption string

// The interruptions.
const (
	NotInterrupted Interruption = ""
	BudgetUsed     Interruption = "reasoning_budget" // the reasoning has as many tokens as it may have
	ReserveReached Interruption = "final_reserve"    // what is left of the output's limit is reserved for the answer
	Repetition     Interruption = "repetition"       // the model generates the same tokens again and again
)

// Unlimited is the budget of reasoning without a limit.
const Unlimited = -1

// Guarding says when the model is interrupted.
type Guarding struct {
	Reasoning int // most tokens of reasoning in a turn; [Unlimited]: any number
	Reserve   int // tokens of the output's limit that reasoning does not use
	Repeats   int // how often the same sequence may come in a row; 0: any number
}

// off reports whether the model is never interrupted.
func (g Guarding) off() bool { return g.Reasoning == Unlimited && g.Reserve == 0 && g.Repeats == 0 }

// Guard watches the output of one choice, and finds where the model has to be
// interrupted. Reasoning that is interrupted is ended for the model, which goes on with
// an answer or a call.
type Guard struct {
	rules  Guarding
	limit  int // tokens that the output may have before reasoning is interrupted; 0: any number
	tools  bool
	parser *harmony.Parser

	output    int  // tokens of the choice
	reasoning int  // of these, tokens of reasoning
	inside    bool // in the text of reasoning
	whole     bool // the text so far ends with a whole character
	cuts      int  // how often reasoning was interrupted
	loop      loopDetector
}

// NewGuard returns the guard of one choice; nil if the model is never interrupted. A nil
// Turn has none.
func (t *Turn) NewGuard() *Guard {
	if t == nil || t.guarding.off() {
		return nil
	}
	g := &Guard{rules: t.guarding, tools: !t.noCalls && len(t.tools.byRecipient) > 0, whole: true}
	if reserve := min(t.guarding.Reserve, t.Engine.MaxTokens/2); reserve > 0 {
		g.limit = t.Engine.MaxTokens - reserve
	}
	g.loop.repeats = t.guarding.Repeats
	role := harmony.RoleAssistant
	if len(t.prefix) > 0 {
		role = ""
	}
	g.parser = harmony.NewParser(harmony.Tolerant, role)
	for _, token := range t.prefix {
		g.parse(token)
	}
	return g
}

// Push takes tokens of the choice. It returns how many of them the choice keeps, and why
// the model is interrupted behind these.
func (g *Guard) Push(tokens []harmony.Token) (kept int, why Interruption) {
	for i, token := range tokens {
		if why := g.before(token); why != NotInterrupted {
			return i, why
		}
		g.output++
		if g.inside && token < harmony.TokenStartOfText {
			g.reasoning++
		}
		g.parse(token)
		if g.loop.push(token) {
			return i + 1, Repetition
		}
	}
	return len(tokens), NotInterrupted
}

// before reports whether the model is interrupted before a token. The text of reasoning
// is cut behind a whole character.
func (g *Guard) before(token harmony.Token) Interruption {
	switch {
	case !g.inside || !g.whole || token >= harmony.TokenStartOfText:
		return NotInterrupted
	case g.rules.Reasoning != Unlimited && g.reasoning >= g.rules.Reasoning:
		return BudgetUsed
	case g.limit > 0 && g.output >= g.limit:
		return ReserveReached
	}
	return NotInterrupted
}

// parse follows the messages of the choice.
func (g *Guard) parse(token harmony.Token) {
	events, err := g.parser.Push(token)
	if err != nil {
		return // the tolerant parser accepts everything
	}
	g.whole = !g.inside || len(events) > 0
	for i := range events {
		switch e := &events[i]; e.Kind {
		case harmony.MessageStart:
			g.inside = e.Header.Recipient == "" && kindOf(e.Header.Channel) == Reasoning
			g.whole = true
		case harmony.MessageEnd:
			g.inside = false
		}
	}
}

// Reasoning reports whether the model is reasoning.
func (g *Guard) Reasoning() bool { return g.inside }

// The tokens by which reasoning is ended.
var (
	nextMessage = harmony.AppendEncodeSpecial(nil, "<|end|><|start|>assistant")
	finalAnswer = harmony.AppendEncodeSpecial(nil, "<|end|><|start|>assistant<|channel|>final<|message|>")
	nextCall    = harmony.AppendEncodeSpecial(nil, "<|end|><|start|>assistant<|channel|>commentary to=")
)

// maxCuts bounds how often the reasoning of a choice is interrupted. A model that is
// left to choose its next message can reason on.
const maxCuts = 4

// Endings returns the tokens by which the reasoning of a choice can be ended, best first;
// none if it cannot any more. Where there are tools the model chooses between an answer
// and a call. If it reasons on, it has to answer, or to call where the request allows
// nothing else.
func (g *Guard) Endings() [][]harmony.Token {
	g.cuts++
	switch {
	case g.cuts > maxCuts:
		return nil
	case !g.tools:
		return [][]harmony.Token{finalAnswer}
	case g.cuts == 1:
		return [][]harmony.Token{nextMessage, finalAnswer}
	}
	return [][]harmony.Token{finalAnswer, nextCall}
}

// Ended takes the tokens by which reasoning was ended.
func (g *Guard) Ended(tokens []harmony.Token) {
	g.output += len(tokens)
	for _, token := range tokens {
		g.parse(token)
		g.loop.push(token)
	}
}

// The bounds of repetitions that are detected.
const (
	maxPeriod    = 128 // tokens of the longest sequence
	leastRepeats = 64  // tokens that all repetitions of a sequence have at least
)

// loopDetector finds sequences of tokens that come several times in a row. The zero value
// finds nothing.
type loopDetector struct {
	repeats int                      // how often a sequence may come; 0: any number
	last    [maxPeriod]harmony.Token // a ring of the last tokens
	n       int                      // tokens so far
	same    [maxPeriod + 1]int       // by period: how many of the last tokens equal the one so many tokens before
}

// push takes a token. It reports whether a sequence has come once more than it may.
func (d *loopDetector) push(token harmony.Token) bool {
	if d.repeats == 0 {
		return false
	}
	found := false
	for period := 1; period <= min(d.n, maxPeriod); period++ {
		if d.last[(d.n-period)%maxPeriod] != token {
			d.same[period] = 0
			continue
		}
		d.same[period]++
		whole := d.same[period] + period // tokens of the sequence and of its repetitions
		found = found || whole > period*d.repeats && whole >= leastRepeats
	}
	d.last[d.n%maxPeriod] = token
	d.n++
	return found
}

// ReasoningLimits are a model's settings about its reasoning. A zero switches off.
type ReasoningLimits struct {
	Budget       int                    `json:"budget,omitempty"`        // most tokens of reasoning in a turn
	ByEffort     map[harmony.Effort]int `json:"by_effort,omitempty"`     // the same, of an effort
	ReserveFinal int                    `json:"reserve_final,omitempty"` // tokens of the output's limit that reasoning does not use
	MaxRepeats   int                    `json:"max_repeats,omitempty"`   // how often the same sequence of tokens may come in a row
}

// guarding returns what the request and its model demand. The least budget counts.
func (rc *RequestContext) guarding(in *Input) Guarding {
	limits := &rc.Model.Reasoning
	g := Guarding{Reasoning: Unlimited, Reserve: limits.ReserveFinal, Repeats: limits.MaxRepeats}
	if in.Budget != nil && *in.Budget >= 0 {
		g.Reasoning = *in.Budget
	}
	effort := cmp.Or(in.Effort, rc.Model.Effort, harmony.EffortMedium)
	for _, budget := range []int{limits.Budget, limits.ByEffort[effort]} {
		if budget > 0 && (g.Reasoning == Unlimited || budget < g.Reasoning) {
			g.Reasoning = budget
		}
	}
	return g
}

// SetBudget reads a budget of reasoning, in tokens; -1 is none.
func (in *Input) SetBudget(v jsontext.Field) *apierror.Error {
	in.Budget = new(int)
	return v.SetInteger(in.Budget, Unlimited, math.MaxInt32)
}
