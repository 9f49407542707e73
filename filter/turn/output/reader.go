package output

import (
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The repairs that the Reader makes, beside those of the parser.
const (
	repairRecipient = "recipient"         // a call's recipient is not spelled as the tool's name
	repairUnknown   = "unknown_tool"      // a call of a tool that the request does not have
	repairWithheld  = "withheld_call"     // a call although no tool was offered
	repairArguments = "empty_arguments"   // a call without arguments got {}
	repairInvalid   = "invalid_arguments" // none was possible: a call's arguments are no JSON object
	repairFailed    = "failed"            // no repair was made: the reply ended with an error
)

// Reader turns the tokens of one choice into events.
//
// The part that is being read, one at a time, is in one of these states:
//
//	none       a message begins → waiting, withheld, started if it is a call, else unseen
//	waiting    the message ends → started if it is a call, else unseen; so does text that
//	           cannot be a call, or is too much
//	withheld   the message ends → none; what was kept may be an answer at the end of the choice
//	unseen     text that may be shown → filled; the message ends → none, without an event
//	started    text that may be shown → filled; a call without any gets {}; the message ends → none
//	filled     the message ends → none
//
// The choice itself goes on, or has ended:
//
//	goes on    a stop condition of the client, a call where one is the most → ended, early;
//	           the engine's end, Close → ended; malformed output → ended, with FinishError
//	ended      nothing: further tokens are not part of it
//
// A message with a recipient is a call whatever its channel, analysis is
// reasoning, commentary is a preamble, and everything else is an answer. Where that is
// in doubt, the end of the message decides, and its text waits for it ([heldPart]). A call
// of a tool that the request does not have is emitted under the name that the
// model used, so that the client can tell the model. Where the request offers no
// tools at all, the call is withheld, and its text becomes an answer if the
// choice would otherwise show nothing; but see [Reader.Corrected].
type Reader struct {
	plan   *Plan
	emit   func(item.Event)
	parser *harmony.Parser
	// Malformed output is an error: the model's setting is MalformedFail.
	strict bool
	// That the choice is read for, before the client gets any of it; nil: it is read for the
	// client.
	check *Check
	// The reasoning of calls is for later requests; false in a Check.
	keeps bool

	// Being read.
	part     part
	stops    stopMatcher
	logprobs pendingLogprobs
	verified verification
	// Of the choice so far, to be kept.
	reasoning reasoningText
	written   writtenTokens
	calls     []*item.CalledTool
	// An answer, preamble or call has been emitted.
	shown bool
	// Calls of unknown tools are not withheld.
	corrected bool
	// The text of withheld calls, while nothing is shown.
	withheld []byte

	ending  ending
	counts  item.Counts
	repairs map[string]int
	kept    *kept.Keep
}

// ending is how a choice ends.
type ending struct {
	// FinishNone while the choice goes on.
	finish item.Finish
	// A stop condition is met: what follows is not part of the choice.
	stopped bool
	// The engine ended the choice because of its length.
	truncated bool
	// The choice has ended, and the engine goes on.
	early bool
	// The stop condition; nil: none of the client's.
	matched *StopMatch
}

// StopMatch is the stop condition of the client that ended a choice: a stop
// string or a stop token.
type StopMatch struct {
	// The stop string; "" for a token.
	Text string
	// The token, if Text is "".
	Token harmony.Token
}

// NewReader returns the reader of one choice. It calls emit with each event, from
// Push and Close.
func (p *Plan) NewReader(emit func(item.Event)) *Reader {
	reader := &Reader{
		plan: p, emit: emit, strict: p.rc.Model.OnMalformed == request.MalformedFail, keeps: p.rc.Memory != nil,
		stops: newStopMatcher(p.stops),
	}
	mode := harmony.Tolerant
	if reader.strict {
		mode = harmony.Strict
	}

	// The header of a begun message is read as if the model had written it.
	if len(p.Header) == 0 {
		reader.parser = harmony.NewParser(mode, harmony.RoleAssistant)
		reader.written = p.newWritten()
		return reader
	}

	reader.parser = harmony.NewParser(mode, "")
	for _, token := range p.Header {
		// The renderer's headers are never malformed.
		_ = reader.parse(token)
	}
	reader.written = p.newWritten()
	return reader
}

// Push takes a chunk of the choice: its next tokens, their log probabilities,
// which the answer's events carry, and its end. It ignores the chunk's index. It
// returns how many of the tokens belong to the choice: fewer than all if a stop
// condition ended it, none after its end. An error means that the output is
// malformed and the model's setting is [request.MalformedFail], or that it violates the
// output's spec.
func (r *Reader) Push(chunk *engine.Chunk) (int, *apierror.Error) {
	if r.plan.Listener != nil {
		r.plan.Listener.Began()
	}
	taken := 0

	// Tokens that are inserted end reasoning for the model: see [Watcher].
	r.part.cut = chunk.Inserted
	for ; taken < len(chunk.Tokens) && r.ending.finish == item.FinishNone; taken++ {
		if r.logprobs.next = nil; taken < len(chunk.Logprobs) {
			r.logprobs.next = &chunk.Logprobs[taken]
		}
		if err := r.push(chunk.Tokens[taken]); err != nil {
			return taken, err
		}
	}

	if chunk.Finish == engine.FinishNone {
		return taken, nil
	}

	// The engine has ended too, so that nothing is left to be dropped.
	r.ending.early = false
	return taken, r.end(chunk.Finish == engine.FinishLength)
}

// Close ends the choice if it has not ended. The error is as for Push.
func (r *Reader) Close() *apierror.Error { return r.end(false) }

// Corrected makes the Reader emit calls that it would withhold: where no tool is
// offered they are calls of unknown tools. It is for replies in which the model
// has another turn to correct such calls, and is called before Push.
func (r *Reader) Corrected() { r.corrected = true }

// Finish returns why the choice ended; FinishNone while it goes on.
func (r *Reader) Finish() item.Finish { return r.ending.finish }

// Early reports whether the choice ended by a stop condition that the engine does
// not check: the engine generates on until the model call is dropped.
func (r *Reader) Early() bool { return r.ending.early }

// Matched returns the client's stop condition that ended the choice, or nil.
func (r *Reader) Matched() *StopMatch { return r.ending.matched }

// Calls returns how many calls the choice has made so far.
func (r *Reader) Calls() int { return len(r.calls) }

// Counts returns the counts of the tokens so far.
func (r *Reader) Counts() item.Counts { return r.counts }

// Kept returns what has to be written to the store for later requests, once the
// choice has ended; nil if there is nothing. It returns the same value each time.
func (r *Reader) Kept() *kept.Keep { return r.kept }

// Cached passes on what the engine reports of the prompt.
func (r *Reader) Cached(usage *engine.Usage) {
	if r.plan.Listener != nil {
		r.plan.Listener.Cached(usage)
	}
}

// AddTo adds the choice to the summary of a reply.
func (r *Reader) AddTo(summary *request.Summary) {
	summary.Counts.Output += r.counts.Output
	summary.Counts.Reasoning += r.counts.Reasoning
	summary.Counts.Call += r.counts.Call
	summary.Counts.Text += r.counts.Text
	summary.Calls += len(r.calls)

	summary.Diagnosis = r.plan.Diagnosis

	// A reply counts the repairs of the reader and those of its parser alike.
	for kind, n := range r.repairs {
		summary.AddRepairs(kind, n)
	}
	parsed := r.parser.Repairs()
	for kind, n := range parsed.All() {
		summary.AddRepairs(kind.String(), n)
	}
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
	if len(r.plan.Call.StopTokens) > 0 && slices.Contains(r.plan.Call.StopTokens, token) {
		return r.stopAt(token)
	}

	if err := r.parse(token); err != nil {
		return err
	}

	// A stop string, or the end of the only call: the engine does not know of it.
	if r.ending.stopped {
		r.ending.early = true
		return r.end(false)
	}
	return nil
}

// stopAt ends the choice at one of the client's stop tokens. The token is not
// part of the text; one that ends a message still does.
func (r *Reader) stopAt(token harmony.Token) *apierror.Error {
	r.ending.matched = &StopMatch{Token: token}
	r.ending.early = true
	if endsMessage(token) {
		if err := r.parse(token); err != nil {
			return err
		}
	}
	return r.end(false)
}

// endsMessage reports whether the token ends a message in the format.
func endsMessage(token harmony.Token) bool {
	return token == harmony.TokenEnd || token == harmony.TokenReturn || token == harmony.TokenCall
}

// parse passes a token to the parser and handles what it completes. For the
// strict parser, as for the reference, a control token in content is text. No
// client may see one, so here it makes the output malformed.
func (r *Reader) parse(token harmony.Token) *apierror.Error {
	if token >= harmony.TokenStartOfText && r.strict && r.parser.State() == harmony.StateContent &&
		!endsMessage(token) {
		return r.malformed()
	}

	if r.written.on {
		r.written.add(token)
	}
	before := r.parser.ContentTokens()
	events, err := r.parser.Push(token)

	// Only a token of content is part of the answer's text. It is noted before its text, because the
	// text may end the answer.
	if r.logprobs.next != nil && r.check == nil && r.part.kind == item.Answer && token < harmony.TokenStartOfText &&
		r.parser.ContentTokens() == before+1 {
		r.logprobs.add(token)
	}

	r.handle(events)

	// What is complete before the fault is the client's.
	if err != nil {
		return r.malformed()
	}
	if r.part.kind != 0 {
		r.count()
	}
	return nil
}

// malformed ends the choice because the output is malformed. The parser's error
// is not passed on: it can contain tokens.
func (r *Reader) malformed() *apierror.Error {
	r.ending.finish = item.FinishError
	r.repaired(repairFailed)
	return apierror.New(http.StatusBadGateway, "malformed_output", "",
		"The model's output breaks the Harmony format. Try again.")
}

// end ends the choice; length reports that the engine ended it because of its
// length.
func (r *Reader) end(length bool) *apierror.Error {
	if r.ending.finish != item.FinishNone {
		return nil
	}

	r.ending.truncated = length
	if !r.ending.stopped {
		events, err := r.parser.Close()
		r.handle(events)
		if err != nil && !length {
			return r.malformed()
		}
	}

	// Without its end a message is what it would be with any end but <|call|>.
	if r.part.kind != 0 {
		r.settle(0)
		r.endPart()
	}

	// Nothing but a call that was not offered: the client gets its text, which is better than nothing.
	if !r.shown && !r.ending.stopped && len(r.withheld) > 0 {
		r.part = part{kind: item.Answer}
		r.text(r.withheld)
		r.endPart()
	}

	// A text that was cut cannot be held against its form: the rest could have completed it.
	if !length {
		if err := r.verifyEnd(); err != nil {
			return err
		}
	}

	switch {
	case length:
		r.ending.finish = item.FinishLength
	case len(r.calls) > 0:
		r.ending.finish = item.FinishCalls
	default:
		r.ending.finish = item.FinishStop
	}

	if len(r.calls) > 0 && r.check == nil {
		r.keep()
	}
	return nil
}

// keep makes what later turns need of the choice, which has ended in calls.
func (r *Reader) keep() {
	choice := r.writtenChoice()
	if r.plan.Listener != nil {
		r.plan.Listener.Called(r.calls[0].ID)
	}
	// What was cut, or goes on behind a stop, is not what the engine has.
	if r.plan.Listener != nil && len(r.written.tokens) > 0 && !r.ending.truncated && r.ending.matched == nil {
		r.plan.Listener.Wrote(withoutEnd(r.written.tokens)[len(r.plan.begunMessage()):], choice == nil)
	}
	stored := kept.New(r.plan.rc, r.calls, string(r.reasoning.text), choice)
	r.plan.keep, r.written = stored, writtenTokens{}

	// Without a store it is for the reply's next turn alone.
	if r.keeps && stored != nil {
		stored.Renew(r.plan.Due)
		r.plan.Due = kept.Renewal{}
		r.kept = stored
	}
}
