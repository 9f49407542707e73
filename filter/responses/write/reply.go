package write

import (
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Reply is the reply to one request. The machine of package reply makes it, and an encoder
// writes it: what Responses has beside the other APIs are steps that the encoder hands to
// the machine, in this order:
//
//	the preflight      servers list their tools, approved calls are made (preflight.go)
//	the compaction     the model writes a summary, before the reply or in its place (compaction.go)
//	the model calls    the machine's own; their calls are runs of tools (runs.go)
//	the commit         how the response has ended is stored before the client knows it (end.go)
//
// It is an [api.BackgroundReply], and is not safe for concurrent use.
type Reply struct {
	*reply.Machine
	encoder *encoder
}

// NewReply begins the reply to the request.
func (r *Request) NewReply(m api.Mode) api.Reply { return r.newReply(m) }

func (r *Request) newReply(m api.Mode) *Reply {
	e := newEncoder(r, m)
	o := reply.Options{
		Encoder: e, Tools: e, Ending: &lastStep{e},
		Stream: r.Options.Stream, Early: true, Mode: m,
		Turns: r.Context.Limits.Turns, MaxTokens: r.MaxOutput, MaxRuns: r.Tools.MaxCalls,
		Run: e.run, NextTurn: e.nextTurn,
	}
	// Nearly every stream has nothing to settle, and is spared a call for each chunk.
	if r.Options.Messages || !r.Options.Follow {
		o.Settler = e
	}
	// In the mode of a single call, the call has been made: there is nothing to prepare.
	if p := r.Preflight; p != nil && m == api.Loop {
		o.First = newPreflight(e, p).list
	}

	if r.Turn != nil && r.Compaction == nil && !r.Options.PrepareOnly {
		e.starts(r.Turn)
		o.Turn = r.Turn
	}

	e.reply = reply.New(o)
	switch {
	case r.Turn == nil:
	case r.Compaction != nil:
		e.starts(r.Turn)
		e.reply.BeginAside(r.Turn, e.takeSummary, e.endCompaction)
	case r.Options.PrepareOnly:
		prepareOnly(e, r.Turn)
	}

	return &Reply{Machine: e.reply, encoder: e}
}

// Summary is what the reply has come to so far.
func (r *Reply) Summary() turn.Summary {
	s := r.Machine.Summary()
	all := r.encoder.usage()
	total := all.total()
	s.Prompt, s.Cached, s.ModelCalls = total.input, total.cached, all.calls()
	// The one token of a prepared prompt is cut where it was asked to be: nothing was repaired.
	if r.encoder.request.Options.PrepareOnly {
		s.Repairs = nil
	}
	return s
}

// Fault is what went wrong without an error for the client, for the log; nil if
// nothing did.
func (r *Reply) Fault() error {
	return errors.Join(r.Machine.Fault(), r.encoder.fault, r.encoder.output.fault)
}

// Background returns the reply if its response is made in the background.
func (r *Reply) Background() api.BackgroundReply {
	if !r.encoder.request.Options.Background {
		return nil
	}
	return r
}

// Start says that the first events of a background response are stored already.
func (r *Reply) Start() {
	r.Begun()
	r.encoder.begun = true
	r.encoder.events.Sequence = r.encoder.request.queued
}

// Sequence is the number of the stream's next event.
func (r *Reply) Sequence() int { return r.encoder.events.Sequence }

// Ending reports whether how the response has ended is being stored.
func (r *Reply) Ending() bool { return r.encoder.committing }

// Lost is why a background response could not be stored as it has ended; nil if it
// could. Its stream has no end of ours then.
func (r *Reply) Lost() error { return r.encoder.lost }

// Text is the text of the item that is being written, for measurements that keep it from
// growing; nil between items.
func (r *Reply) Text() *[]byte {
	if r.encoder.output.item == nil {
		return nil
	}
	return &r.encoder.output.item.Text
}

// encoder writes a reply. Streams and whole objects are made of the same parts: a stream
// has the events of each as it comes, the object is what they add up to. It is a
// [reply.Encoder], a [reply.Settler] and [reply.Tools].
type encoder struct {
	request *Request
	reply   *reply.Machine
	mode    api.Mode

	// What is written: the events, the items, and the object that has them. begun says that
	// the first events are.
	events eventWriter
	output output
	object responseObject
	begun  bool

	// What the model calls have come to, beside what the machine knows: those of the requests
	// before this one that have made the same response, the Harmony messages (nil: the client
	// does not want them), and how the first prompt extends another (nil: not compared).
	earlier   usage
	messages  *messages
	diagnosis *turn.Diagnosis

	// The turn that is being made: how many of the made items its prompt has, how many
	// searches for tools were run, and the call that becomes a run now.
	prompted int
	searches int
	call     *hostedCall

	// The compaction that the reply is, or begins with; nil: there is none.
	compaction *compacting
	summary    compaction.Summary

	// How the reply has ended: see the table in end.go. lost is why a background response
	// could not be stored so.
	ending     ending
	committing bool
	commitMade bool
	lost       error

	// fault is what went wrong without an error for the client.
	fault error
}

func (e *encoder) note(fault error) { e.fault = errors.Join(e.fault, fault) }

// take returns what the writer of events has written.
func (e *encoder) take() []byte {
	dst := e.events.Dst
	e.events.Dst = nil
	return dst
}

func newEncoder(r *Request, m api.Mode) *encoder {
	e := &encoder{request: r, mode: m, events: newEventWriter(r.Options), earlier: resumedUsage(r.Storage.Continued)}
	e.output = output{
		request:  r.Request,
		events:   &e.events,
		mode:     m,
		answered: -1,
		pages:    r.Tools.Pages.With(item.Pages{}),
	}
	e.object = responseObject{request: r.Request, encoder: e, stored: r.Storage.Wanted}
	if r.Compaction != nil {
		e.compaction = &compacting{Compaction: r.Compaction}
	}
	if r.Options.Messages {
		e.messages = &messages{}
	}
	return e
}

// The methods of the machine's interfaces get what the client has, and return it with what
// they have written. In between, the writer of events has it.

// Begin writes the first events of a stream.
func (e *encoder) Begin(dst []byte, _ *reply.Choice) []byte {
	e.events.Dst = dst
	e.begin()
	return e.take()
}

// Open begins the item that a part of the turn becomes.
func (e *encoder) Open(dst []byte, p *reply.Part) []byte {
	if e.hides(p) {
		return dst
	}
	e.events.Dst = dst
	// A client runs its tool as soon as it has the call: what led to the call comes first.
	if p.Kind == turn.Call && p.Maker == reply.ByClient {
		e.output.carry()
	}
	e.output.start(p.Kind, p.Call)
	return e.take()
}

// hides reports whether the client does not see a part.
func (e *encoder) hides(p *reply.Part) bool {
	return p.Kind == turn.Reasoning && e.request.Options.HideReasoning
}

// Delta adds text to the item.
func (e *encoder) Delta(dst []byte, p *reply.Part, text []byte) []byte {
	if e.hides(p) {
		return dst
	}
	e.events.Dst = dst
	e.output.text(text, p.Logprobs)
	e.output.closeDelta()
	return e.take()
}

// Close completes the item; cut says that the engine ended it.
func (e *encoder) Close(dst []byte, p *reply.Part, text []byte, cut bool) []byte {
	if e.hides(p) {
		return dst
	}
	e.events.Dst = dst
	e.output.text(text, p.Logprobs)
	e.endItem(cut)
	return e.take()
}

// endItem completes the item that is being written.
func (e *encoder) endItem(cut bool) {
	it := e.output.endText()
	switch {
	case cut && it.Kind.OnlyWhole():
		// The client has seen nothing of it, and there is nothing to run.
	case it.Kind == item.Unknown:
		e.output.addUnknown(it)
	case it.Kind == item.MCPApproval:
		e.output.addWhole(it)
	case it.Kind == item.ToolSearch:
		e.search(it)
	case it.Kind.HasAction():
		e.output.addAction(it)
	case it.hosted != nil && !cut:
		e.call = e.output.newCall(it)
	default:
		e.output.addText(it, cut)
	}
}

// cutItem adds the item that has begun to those of the response, as far as it has come.
// No event says that it is complete: clients make the calls that are.
func (e *encoder) cutItem() {
	if it := e.output.item; it != nil && !it.Kind.OnlyWhole() {
		e.output.add(it, item.StatusIncomplete)
	}
	e.output.item = nil
}

// Settle takes the tokens of a push.
func (e *encoder) Settle(dst []byte, _ *reply.Choice, tokens []harmony.Token) ([]byte, *apierror.Error) {
	// The messages are read from the tokens themselves: the parts do not have their headers.
	if e.messages != nil {
		e.messages.tokens = append(e.messages.tokens, tokens...)
	}
	return dst, e.checkLogprobs()
}

// Finish writes nothing: why the response has ended is in its last event.
func (e *encoder) Finish(dst []byte, _ *reply.Choice) []byte { return dst }

// checkLogprobs returns an error if the client gets no events and the reply has more
// log probabilities than an object may have.
func (e *encoder) checkLogprobs() *apierror.Error {
	if !e.output.logprobs.tooLarge || e.request.Options.Follow {
		return nil
	}
	return turn.LogprobsTooLarge("include", "max_output_tokens")
}
