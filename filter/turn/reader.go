package turn

import (
	"net/http"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The repairs that are made here, beside those of the parser.
const (
	repairRecipient = "recipient"       // a call's recipient was not written as the tool is named
	repairUnknown   = "unknown_tool"    // a call of a tool that the request does not have
	repairWithheld  = "withheld_call"   // a call although no tool was offered
	repairArguments = "empty_arguments" // a call without arguments got {}
	repairFailed    = "failed"          // none was made: the reply ended in an error, as [MalformedFail] asks for
)

// maxKept bounds the reasoning that is kept for one tool turn.
const maxKept = 1 << 20

// Reader turns the tokens of one choice into events.
//
// A message with a recipient is a call whatever its channel, analysis is
// reasoning, commentary a preamble, and everything else an answer. A call of a
// tool that the request does not have is handed out under the name that the
// model used, so that the client can tell the model; where the request offers
// no tools at all the call is withheld, and its text becomes an answer only if
// the choice would otherwise show none, unless whoever reads the events tells the
// model: see [Reader.Corrected].
type Reader struct {
	turn   *Turn
	emit   func(Event)
	parser *harmony.Parser
	strict bool // the model's setting is MalformedFail
	stops  stopMatcher

	part    Kind // of the message being read; 0 between messages
	started bool // its Start has been emitted
	empty   bool // the call has had no arguments yet
	call    *CalledTool
	calls   []*CalledTool
	shown   bool // an answer, preamble or call has been emitted

	likely  likelihoods
	watched []byte // the text of the part being read, where it is checked
	broken  bool   // a part was not as the constraint has it

	corrected   bool   // calls are not withheld
	withholding bool   // the message being read is a call that is not handed out
	withheld    []byte // the text of such calls, while nothing is shown
	reasoning   []byte // kept for the tool turn
	full        bool   // there is more of it than is kept

	counts  Counts
	counted int  // content tokens of the message being read that are in counts
	over    bool // a stop condition is met: what follows is not the choice's
	cut     bool // the engine ended the choice by length
	finish  Finish
	early   bool
	matched *StopMatch
	repairs map[string]int
	fault   error
	trial   bool // nothing of it is for a later request
}

// StopMatch is what a client's stop condition matched: a stop string or a stop
// token id.
type StopMatch struct {
	Text  string // "" for a token
	Token harmony.Token
}

// NewReader makes the reader of one choice. It calls emit with each event, from
// Push and Close.
func (t *Turn) NewReader(emit func(Event)) *Reader {
	r := &Reader{turn: t, emit: emit, strict: t.scope.Model.OnMalformed == MalformedFail, stops: newStopMatcher(t.stops)}
	mode := harmony.Tolerant
	if r.strict {
		mode = harmony.Strict
	}
	if len(t.prefix) == 0 {
		r.parser = harmony.NewParser(mode, harmony.RoleAssistant)
		return r
	}
	r.parser = harmony.NewParser(mode, "")
	for _, token := range t.prefix {
		_ = r.parse(token) // a header of our own rendering is never malformed
	}
	return r
}

// Push reads news of the choice, whose index it does not look at: its next
// tokens, how likely they were, which the answer's events tell on, and its end.
// It returns how many of the tokens count: fewer than all where a stop condition
// ended the choice. After the end of the choice it does nothing. An error means
// that the model broke the format and the model's setting is [MalformedFail].
func (r *Reader) Push(c *engine.Chunk) (int, *apierror.Error) {
	taken := 0
	for ; taken < len(c.Tokens) && r.finish == FinishNone; taken++ {
		if r.likely.next = nil; taken < len(c.Logprobs) {
			r.likely.next = &c.Logprobs[taken]
		}
		if err := r.push(c.Tokens[taken]); err != nil {
			return taken, err
		}
	}
	if c.Finish == engine.FinishNone {
		return taken, nil
	}
	r.early = false
	return taken, r.end(c.Finish == engine.FinishLength)
}

// Close ends the choice if it has not ended.
func (r *Reader) Close() *apierror.Error { return r.end(false) }

// Corrected says that the model is told of calls that it cannot make, and has
// another turn: where no tool is offered they are calls of tools that the request
// does not have.
func (r *Reader) Corrected() { r.corrected = true }

// Finish is why the choice ended; FinishNone while it goes on.
func (r *Reader) Finish() Finish { return r.finish }

// Early tells whether the choice ended by a stop condition that the engine
// does not know of: it goes on generating unless it is told.
func (r *Reader) Early() bool { return r.early }

// Matched is the client's stop condition that ended the choice, or nil.
func (r *Reader) Matched() *StopMatch { return r.matched }

// Calls is how many calls the choice has made so far.
func (r *Reader) Calls() int { return len(r.calls) }

// Counts is the tokens so far.
func (r *Reader) Counts() Counts { return r.counts }

// Fault is what could not be kept for later requests, for the log; nil if
// nothing went wrong.
func (r *Reader) Fault() error { return r.fault }

// AddTo adds the choice to the summary of a reply.
func (r *Reader) AddTo(s *Summary) {
	s.Counts.Output += r.counts.Output
	s.Counts.Reasoning += r.counts.Reasoning
	s.Counts.Call += r.counts.Call
	s.Counts.Text += r.counts.Text
	s.Calls += len(r.calls)
	for kind, n := range r.repairs {
		s.addRepairs(kind, n)
	}
	mended := r.parser.Repairs()
	for kind, n := range mended.All() {
		s.addRepairs(kind.String(), n)
	}
}

func (s *Summary) addRepairs(kind string, n int) {
	if s.Repairs == nil {
		s.Repairs = map[string]int{}
	}
	s.Repairs[kind] += n
}

func (r *Reader) repaired(kind string) {
	if r.repairs == nil {
		r.repairs = map[string]int{}
	}
	r.repairs[kind]++
}

// push reads one token.
func (r *Reader) push(token harmony.Token) *apierror.Error {
	r.counts.Output++
	if len(r.turn.Engine.StopTokens) > 0 && slices.Contains(r.turn.Engine.StopTokens, token) {
		return r.stopAt(token)
	}
	if err := r.parse(token); err != nil {
		return err
	}
	if r.over {
		r.early = true
		return r.end(false)
	}
	return nil
}

// count counts the content tokens of the message being read that have come
// since the last call.
func (r *Reader) count() {
	n := r.parser.ContentTokens() - r.counted
	r.counted += n
	switch r.part {
	case 0:
	case Reasoning:
		r.counts.Reasoning += n
	case Call:
		r.counts.Call += n
	default:
		r.counts.Text += n
	}
}

// stopAt ends the choice at one of the client's stop tokens. It is not part of
// the text; one that ends a message still does.
func (r *Reader) stopAt(token harmony.Token) *apierror.Error {
	r.matched = &StopMatch{Token: token}
	r.early = true
	if endsMessage(token) {
		if err := r.parse(token); err != nil {
			return err
		}
	}
	return r.end(false)
}

// endsMessage tells whether the format ends a message with the token.
func endsMessage(token harmony.Token) bool {
	return token == harmony.TokenEnd || token == harmony.TokenReturn || token == harmony.TokenCall
}

// parse hands a token to the parser and handles what it completes. For the
// strict parser, as for the reference, a control token in content is text;
// nobody may see one, so it breaks the format here.
func (r *Reader) parse(token harmony.Token) *apierror.Error {
	if token >= harmony.TokenStartOfText && r.strict && r.parser.State() == harmony.StateContent && !endsMessage(token) {
		return r.malformed()
	}
	before := r.parser.ContentTokens()
	events, err := r.parser.Push(token)
	if r.likely.next != nil && r.part == Answer && token < harmony.TokenStartOfText && r.parser.ContentTokens() == before+1 {
		r.likely.note(token)
	}
	r.handle(events)
	if err != nil {
		return r.malformed()
	}
	if r.part != 0 {
		r.count()
	}
	return nil
}

// malformed ends the choice because the model broke the format. What the
// parser said stays here: it can have tokens in it.
func (r *Reader) malformed() *apierror.Error {
	r.finish = FinishError
	r.repaired(repairFailed)
	return apierror.New(http.StatusBadGateway, "malformed_output", "", "The model's output breaks the Harmony format. Try again.")
}

func (r *Reader) handle(events []harmony.Event) {
	for i := range events {
		if r.over {
			return
		}
		switch e := &events[i]; e.Kind {
		case harmony.MessageStart:
			r.begin(e.Header)
		case harmony.Delta:
			r.text(e.Text)
		case harmony.MessageEnd:
			if i == len(events)-1 {
				r.count()
			}
			r.text(e.Text)
			r.endPart()
		}
	}
}

// begin takes a message's header.
func (r *Reader) begin(h *harmony.Header) {
	r.started, r.empty, r.withholding, r.counted = false, true, false, 0
	called, ok := r.called(h)
	if !ok {
		r.part = partOf(h.Channel)
		return
	}
	r.part = Call
	if r.withholding {
		return
	}
	r.call = &CalledTool{Index: len(r.calls), ID: r.turn.scope.NewID("call_"), Namespace: called.namespace, Name: called.name, Builtin: called.builtin}
	if allowed := r.turn.kept.allowed; allowed != nil {
		r.call.Refused = !slices.Contains(allowed, ToolName{called.namespace, called.name, called.builtin})
	}
	r.calls = append(r.calls, r.call)
	r.start()
}

// partOf is what a message without a recipient is.
func partOf(channel string) Kind {
	switch channel {
	case harmony.ChannelAnalysis:
		return Reasoning
	case harmony.ChannelCommentary:
		return Preamble
	}
	return Answer
}

// called is the tool that a header calls, if it calls one.
func (r *Reader) called(h *harmony.Header) (tool, bool) {
	if h.Recipient == "" {
		return tool{}, false
	}
	t, found := r.turn.tools.resolve(h.Recipient)
	switch {
	case found == nobody, found == unknown && h.Channel == harmony.ChannelFinal:
		r.repaired(repairRecipient)
		return tool{}, false
	case r.toolless() && r.corrected:
		r.repaired(repairUnknown)
		return tool{name: plainName(strings.TrimPrefix(cleanRecipient(h.Recipient), FunctionsNamespace+"."))}, true
	case r.toolless():
		r.repaired(repairWithheld)
		r.withholding = true
	case found == mended:
		r.repaired(repairRecipient)
	case found == unknown:
		r.repaired(repairUnknown)
	}
	return t, true
}

// toolless tells whether the model is offered no tools.
func (r *Reader) toolless() bool { return r.turn.noCalls || len(r.turn.tools.byRecipient) == 0 }

// text takes a piece of a message's content.
func (r *Reader) text(p []byte) {
	if len(p) == 0 {
		return
	}
	switch {
	case r.withholding:
		if !r.shown {
			r.withheld = append(r.withheld, p...)
		}
	case r.part == Answer:
		r.likely.read += len(p)
		show, hit := r.stops.push(p, r.turn.keepStop)
		r.delta(show)
		if hit >= 0 {
			r.matched = &StopMatch{Text: string(r.turn.stops[hit].text)}
			r.over = true
		}
	default:
		if r.part == Reasoning {
			r.keep(p)
		}
		r.delta(p)
	}
}

// delta emits text of the part, and its start before the first.
func (r *Reader) delta(p []byte) {
	if len(p) == 0 {
		return
	}
	r.start()
	r.empty = false
	if r.watches() {
		r.watched = append(r.watched, p...)
	}
	e := Event{Step: Delta, Kind: r.part, Text: p, Call: r.call}
	if r.part == Answer {
		e.Logprobs = r.likely.show(len(p))
	}
	r.emit(e)
}

func (r *Reader) start() {
	if r.started {
		return
	}
	r.started = true
	r.shown = r.shown || r.part != Reasoning
	if r.shown {
		r.withheld = nil
	}
	r.emit(Event{Step: Start, Kind: r.part, Call: r.call})
}

// endPart ends the message being read.
func (r *Reader) endPart() {
	if r.part == Answer && !r.over {
		r.delta(r.stops.flush())
	}
	if r.part == Call && !r.withholding && !r.cut {
		if r.empty && !r.call.IsCode() {
			r.repaired(repairArguments)
			r.delta([]byte("{}"))
		}
		r.over = r.over || r.turn.oneCall
	}
	if !r.cut {
		r.checkPart()
	}
	if r.started {
		r.emit(Event{Step: End, Kind: r.part, Call: r.call, Cut: r.cut})
	}
	r.likely.end()
	r.part, r.started, r.call = 0, false, nil
}

// end ends the choice; length says that the engine ended it for its length.
func (r *Reader) end(length bool) *apierror.Error {
	if r.finish != FinishNone {
		return nil
	}
	r.cut = length
	if !r.over {
		events, err := r.parser.Close()
		r.handle(events)
		if err != nil && !length {
			return r.malformed()
		}
	}
	if r.part != 0 {
		r.endPart()
	}
	if !r.shown && !r.over && len(r.withheld) > 0 {
		r.part, r.withholding = Answer, false
		r.text(r.withheld)
		r.endPart()
	}
	if !length {
		if err := r.checkEnd(); err != nil {
			return err
		}
	}
	switch {
	case length:
		r.finish = FinishLength
	case len(r.calls) > 0:
		r.finish = FinishCalls
	default:
		r.finish = FinishStop
	}
	r.remember()
	return nil
}

// keep gathers the reasoning of a turn that may end in calls: its beginning, if
// it is longer than what is kept.
func (r *Reader) keep(p []byte) {
	if r.full || r.turn.scope.Memory == nil || r.toolless() && !r.corrected {
		return
	}
	between := ""
	if !r.started && len(r.reasoning) > 0 {
		between = "\n\n"
	}
	if len(r.reasoning)+len(between)+len(p) > maxKept {
		r.full = true
		return
	}
	r.reasoning = append(append(r.reasoning, between...), p...)
}

// remember keeps the reasoning for the calls that it led to.
func (r *Reader) remember() {
	if len(r.reasoning) > 0 && len(r.calls) > 0 && !r.trial {
		r.fault = r.turn.keepReasoning(r.calls, string(r.reasoning))
	}
}
