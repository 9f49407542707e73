package output

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
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
	InvalidCall    Interruption = "invalid_call"     // the arguments of a call are not those that its tool takes
)

// watchRules says when the model is interrupted.
type watchRules struct {
	// Most tokens of reasoning in a turn; [request.Unlimited]: any number.
	reasoning int
	// Tokens of the output's limit that reasoning does not use.
	reserve int
	// How often the same sequence may come in a row; 0: any number.
	repeats int
}

// off reports whether the model is never interrupted.
func (r watchRules) off() bool {
	return r.reasoning == request.Unlimited && r.reserve == 0 && r.repeats == 0
}

// Watcher watches the output of one choice, and finds where the model has to be
// interrupted. Reasoning that is interrupted is ended for the model, which goes on with
// an answer or a call.
//
// It is in one of these states. In any of them a repetition ends the choice.
//
//	watching    reasoning begins → reasoning; the header of a call that is checked → holding
//	reasoning   its message ends → watching; it has used its budget, or has reached the reserve
//	            → the caller inserts one of Endings, and reports it by Ended → watching
//	holding     the call ends, and passes → watching, with what was held back; it does not pass →
//	            the caller asks again, from what Again was given → holding, of a call that passes;
//	            the choice ends, Release → watching; the model call is lost, Lost → what the
//	            output says that is left
type Watcher struct {
	rules watchRules
	// Tokens that the output may have before reasoning is interrupted; 0: any number.
	limit int
	// The model is offered tools.
	tools  bool
	parser *harmony.Parser

	// Tokens of the choice.
	output int
	// Of these, tokens of reasoning.
	reasoning int

	// In the text of reasoning.
	inside bool
	// The text so far ends with a whole character.
	whole bool
	// How often reasoning was interrupted.
	cuts int
	loop loopDetector

	// The header of the message that the request has begun, see [Plan].
	prefix []harmony.Token
	// Of the call that is being written, if there is one.
	call callCheck
	// Of the arguments of a call, that wait for their end.
	held []harmony.Token
}

// Budgeted reports whether the turn's reasoning or its repetitions have bounds.
func (p *Plan) Budgeted() bool { return !p.watching.off() }

// NewWatcher returns the watcher of one choice; nil if the model is never interrupted.
func (p *Plan) NewWatcher() *Watcher {
	if p.watching.off() && !p.asksAgain() {
		return nil
	}

	watcher := &Watcher{rules: p.watching, whole: true, prefix: p.Header}
	watcher.tools = !p.noCalls && !p.tools.Empty()
	if p.asksAgain() {
		watcher.call.rules, watcher.call.rc = p.calls, p.rc
	}

	// Half of the output at most is for the answer: where the limit is small, the model would
	// not reason at all.
	if reserve := min(p.watching.reserve, p.Call.MaxTokens/2); reserve > 0 {
		watcher.limit = p.Call.MaxTokens - reserve
	}

	watcher.read(nil)
	return watcher
}

// read begins to follow a choice that has this output. What was dropped does not count: it is no
// part of the output that the rules are about, and the same tokens may come once more.
func (w *Watcher) read(output []harmony.Token) {
	role := harmony.RoleAssistant
	if len(w.prefix) > 0 {
		role = ""
	}
	w.parser = harmony.NewParser(harmony.Tolerant, role)
	w.output, w.reasoning, w.loop = 0, 0, loopDetector{repeats: w.rules.repeats}

	// The header of a begun message is no output. Calls that have ended are the client's: they
	// were passed on.
	for i, token := range slices.Concat(w.prefix, output) {
		if i >= len(w.prefix) {
			w.count(token)
		}
		if w.parse(token) {
			w.call.state = callPasses
		}
	}

	// A repetition that begins before these would have been found.
	for _, token := range output[max(0, len(output)-w.loop.window()):] {
		w.loop.push(token)
	}
}

// count counts a token of the choice.
func (w *Watcher) count(token harmony.Token) {
	w.output++
	if w.inside && token < harmony.TokenStartOfText {
		w.reasoning++
	}
}

// asksAgain reports whether arguments of calls that are not those that their tools take are
// asked for again.
func (p *Plan) asksAgain() bool {
	return p.calls != nil && !p.rc.Checked && !p.noCalls && !p.tools.Empty()
}

// Push takes tokens of the choice. It returns the tokens that the choice has now, and why
// the model is interrupted after these. The arguments of calls that are checked are held
// back until they are whole; they are not returned if they have to be asked for again.
func (w *Watcher) Push(tokens []harmony.Token) (kept []harmony.Token, why Interruption) {
	// What was held back of earlier chunks and is passed on now.
	var released []harmony.Token
	// Where in tokens what is held back begins, if something is.
	from := 0

	for i, token := range tokens {
		if why := w.before(token); why != NotInterrupted {
			return slices.Concat(released, tokens[:i]), why
		}

		w.count(token)
		held := w.call.holds()
		ended := w.parse(token)
		switch {
		// The token ends the header: what is after it waits.
		case !held && w.call.holds():
			from = i + 1
		case !held || !ended:
		case w.call.passes():
			w.call.state = callPasses
			released, w.held = append(released, w.held...), nil
		default:
			w.held = nil
			return slices.Concat(released, tokens[:from]), InvalidCall
		}

		// The choice ends here: what was held back has no end to wait for.
		if w.loop.push(token) {
			released = append(released, w.held...)
			w.held, w.call.state = nil, callPasses
			return slices.Concat(released, tokens[:i+1]), Repetition
		}
	}

	// Most chunks are passed on as they are, without a copy.
	kept = tokens
	if w.call.holds() {
		kept = tokens[:from]
		w.held = append(w.held, tokens[from:]...)
	}
	if len(released) > 0 {
		kept = slices.Concat(released, kept)
	}
	return kept, NotInterrupted
}

// Release returns the tokens that are held back, at the end of the choice.
func (w *Watcher) Release() []harmony.Token {
	held := w.held
	w.held, w.call.state = nil, callPasses
	return held
}

// Lost drops the tokens that are held back, because the model call was lost. output is what
// the choice has.
func (w *Watcher) Lost(output []harmony.Token) {
	if len(w.held) == 0 {
		return
	}

	// If the header is left, the same arguments are generated again.
	before := w.call.state
	w.held = nil
	w.read(output)
	if w.call.holds() {
		w.call.state = before
	}
}

// Again returns what the arguments have to be that are asked for again. output is what the
// choice has: it ends with the header of the call.
func (w *Watcher) Again(output []harmony.Token) constraint.Format {
	w.read(output)
	w.call.state = callAskedAgain
	return w.call.format()
}

// AskNoMore passes the arguments of further calls on as they are.
func (w *Watcher) AskNoMore() { w.call.enough = true }

// before reports whether the model is interrupted before a token. The text of reasoning
// is cut after a whole character.
func (w *Watcher) before(token harmony.Token) Interruption {
	switch {
	case !w.inside || !w.whole || token >= harmony.TokenStartOfText:
		return NotInterrupted
	case w.rules.reasoning != request.Unlimited && w.reasoning >= w.rules.reasoning:
		return BudgetUsed
	case w.limit > 0 && w.output >= w.limit:
		return ReserveReached
	}
	return NotInterrupted
}

// parse follows the messages of the choice. It reports whether one ends.
func (w *Watcher) parse(token harmony.Token) (ended bool) {
	// The tolerant parser accepts everything.
	events, err := w.parser.Push(token)
	if err != nil {
		return false
	}

	// A token that ends inside of a character has no event: its text comes with the next one.
	w.whole = !w.inside || len(events) > 0
	for i := range events {
		switch e := &events[i]; e.Kind {
		case harmony.MessageStart:
			w.inside = e.Header.Recipient == "" && item.KindOf(e.Header.Channel) == item.Reasoning
			w.whole = true
			w.call.begin(e.Header)
		case harmony.Delta:
			w.call.add(e.Text)
		case harmony.MessageEnd:
			w.call.add(e.Text)
			w.inside, ended = false, true
		}
	}
	return ended
}

// Reasoning reports whether the model is reasoning.
func (w *Watcher) Reasoning() bool { return w.inside }

// The tokens by which reasoning is ended.
var (
	nextMessage = harmony.AppendEncodeSpecial(nil, "<|end|><|start|>assistant")
	finalAnswer = harmony.AppendEncodeSpecial(nil, "<|end|><|start|>assistant<|channel|>final<|message|>")
	nextCall    = harmony.AppendEncodeSpecial(nil, "<|end|><|start|>assistant<|channel|>commentary to=")
)

// Endings returns the tokens by which the reasoning of a choice can be ended, best first.
// Where there are tools the model chooses between an answer and a call. If it reasons on, or
// would not be interrupted again if it did (last), it has to answer, or to call where the
// request allows nothing else.
func (w *Watcher) Endings(last bool) [][]harmony.Token {
	w.cuts++
	switch {
	case !w.tools:
		return [][]harmony.Token{finalAnswer}
	case w.cuts == 1 && !last:
		return [][]harmony.Token{nextMessage, finalAnswer}
	}
	return [][]harmony.Token{finalAnswer, nextCall}
}

// Interrupted reports whether the reasoning of the choice was ended before.
func (w *Watcher) Interrupted() bool { return w.cuts > 0 }

// Ended takes the tokens by which reasoning was ended.
func (w *Watcher) Ended(tokens []harmony.Token) {
	for _, token := range tokens {
		w.count(token)
		w.parse(token)
		w.loop.push(token)
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
	// How often a sequence may come; 0: any number.
	repeats int
	// A ring of the last tokens.
	last [maxPeriod]harmony.Token
	// Tokens so far.
	n int
	// By period: how many of the last tokens equal the one so many tokens before.
	same [maxPeriod + 1]int
}

// window returns how many tokens decide whether the next one is a repetition too many.
func (d *loopDetector) window() int { return maxPeriod*(d.repeats+1) + leastRepeats }

// push takes a token. It reports whether a sequence has come once more than it may.
func (d *loopDetector) push(token harmony.Token) bool {
	if d.repeats == 0 {
		return false
	}

	// Every period is counted with each token, also after one is found: the state has to be right
	// for the next one.
	found := false
	for period := 1; period <= min(d.n, maxPeriod); period++ {
		if d.last[(d.n-period)%maxPeriod] != token {
			d.same[period] = 0
			continue
		}
		d.same[period]++
		// Tokens of the sequence and of its repetitions.
		whole := d.same[period] + period
		found = found || whole > period*d.repeats && whole >= leastRepeats
	}

	d.last[d.n%maxPeriod] = token
	d.n++
	return found
}

// newWatchRules returns what the request and its model demand. The least budget counts.
func newWatchRules(rc *request.Context, in *request.Input) watchRules {
	limits := &rc.Model.Reasoning
	rules := watchRules{reasoning: request.Unlimited, reserve: limits.ReserveFinal, repeats: limits.MaxRepeats}
	if in.Budget != nil && *in.Budget >= 0 {
		rules.reasoning = *in.Budget
	}
	for _, budget := range []int{limits.Budget, limits.OfEffort(rc.Efforts(in))} {
		if budget > 0 && (rules.reasoning == request.Unlimited || budget < rules.reasoning) {
			rules.reasoning = budget
		}
	}
	return rules
}
