package output

import (
	"github.com/envoy-harmony/envoy-harmony/filter/arguments"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// part is the message that is being read.
type part struct {
	// 0 between messages.
	kind item.Kind
	// Its text waits for the end of the message; nil: it does not.
	held *heldPart
	// Its text has waited.
	settled bool
	state   partState
	// Of a call that is not withheld.
	call *item.CalledTool
	// It is a call that is not emitted.
	withheld bool
	// Of a call's arguments; nil: they are passed on as they are.
	repairer *arguments.Repairer
	// It is reasoning that is ended for the model.
	cut bool
	// Content tokens that are in the Reader's counts.
	counted int
}

// partState is how much of a part has been emitted. The map above [Reader] says who leaves it.
type partState uint8

const (
	partUnseen  partState = iota // nothing
	partStarted                  // its Start
	partFilled                   // its Start and some text
)

// count counts the content tokens of the part since the last call.
func (r *Reader) count() {
	if r.part.held != nil {
		// Until it has a kind.
		return
	}
	n := r.parser.ContentTokens() - r.part.counted
	r.part.counted += n
	switch r.part.kind {
	case 0:
	case item.Reasoning:
		r.counts.Reasoning += n
	case item.Call:
		r.counts.Call += n
	default:
		r.counts.Text += n
	}
}

// handle handles the parser's events.
func (r *Reader) handle(events []harmony.Event) {
	for i := range events {
		if r.ending.stopped {
			return
		}
		switch e := &events[i]; e.Kind {
		case harmony.MessageStart:
			r.beginPart(e.Header)
		case harmony.Delta:
			r.text(e.Text)
		case harmony.MessageEnd:
			r.text(e.Text)
			r.settle(e.End)
			if i == len(events)-1 {
				r.count()
			}
			r.endPart()
		}
	}
}

// beginPart begins a part with its message's header.
func (r *Reader) beginPart(header *harmony.Header) {
	r.part = part{}
	called, found := r.plan.tools.Addressee(header)

	switch {
	case found == toolset.NoRecipient:
		r.part.kind = item.KindOf(header.Channel)
	// Where calls are withheld, nobody would execute it: a doubtful one is a text.
	case found == toolset.Unsure && !r.calling():
		r.part.kind = item.KindOf(header.Channel)
		r.repaired(repairRecipient)
	// Its text is kept: it may be all that the model says.
	case !r.calling():
		r.part.kind, r.part.withheld = item.Call, true
		r.repaired(repairWithheld)
	// Whether it is a call tells its end.
	case found == toolset.Unsure:
		r.hold(&heldPart{header: header, unknown: called, parallel: toolset.IsParallel(header.Recipient)})
	// No tool is offered, and the reply has another turn in which the model is told.
	case r.toolless():
		r.beginCall(toolset.Unoffered(header), toolset.Unknown, header.ContentType)
	case found == toolset.Unknown && toolset.IsParallel(header.Recipient):
		r.hold(&heldPart{header: header, unknown: called, parallel: true, sure: true})
	default:
		r.beginCall(called, found, toolset.TypeOf(header, called))
	}
}

// beginCall begins a part that is a call. Its content type is as in the header.
func (r *Reader) beginCall(called item.ToolName, found toolset.Address, contentType string) {
	switch found {
	case toolset.Respelled:
		r.repaired(repairRecipient)
	case toolset.Unknown:
		r.repaired(repairUnknown)
	}

	r.part.kind = item.Call

	// The name alone breaks the choice of tools: neither a stream nor an object has anything of
	// such a call, and the output that the client waits for cannot come any more.
	if allowed := r.plan.verifier.allowed; allowed != nil && !allowed[called] {
		r.part.withheld = true
		r.verified.violated, r.ending.stopped = true, true
		return
	}

	call := &item.CalledTool{
		Index: len(r.calls), ID: r.newCallID(called, found),
		Namespace: called.Namespace, Name: called.Name, Builtin: called.Builtin,
	}
	r.part.call = call

	if r.plan.tools.Repairs(r.plan.rc.Model, called) {
		r.part.repairer = r.plan.tools.Repairer(called, contentType)
	}

	r.calls = append(r.calls, call)
	r.start()
}

// calling reports whether calls are emitted, and not withheld.
func (r *Reader) calling() bool { return !r.toolless() || r.corrected }

// toolless reports whether the model is offered no tools.
func (r *Reader) toolless() bool { return r.plan.noCalls || r.plan.tools.Empty() }

// text takes a piece of the part's content.
func (r *Reader) text(piece []byte) {
	if len(piece) == 0 {
		return
	}

	switch {
	case r.holds(piece):
		r.wait(piece)
	case r.part.withheld:
		// Once the client has something, a withheld call is not shown any more.
		if !r.shown {
			r.withheld = append(r.withheld, piece...)
		}
	case r.part.kind == item.Answer:
		r.logprobs.read += len(piece)
		// Stop strings end answers alone: reasoning and calls may have them.
		show, hit := r.stops.push(piece, r.plan.keepStop)
		r.delta(show)
		if hit >= 0 {
			r.ending.matched = &StopMatch{Text: r.plan.stops.texts[hit]}
			r.ending.stopped = true
		}
	default:
		// Reasoning is kept for the calls that it leads to: without tools there are none.
		if r.part.kind == item.Reasoning && r.keeps && (!r.toolless() || r.corrected) {
			r.reasoning.add(piece, r.part.state == partUnseen)
		}
		if r.part.repairer != nil {
			piece = r.part.repairer.Push(piece)
		}
		r.delta(piece)
	}
}

// delta emits text of the part, and the part's Start before the first text.
func (r *Reader) delta(piece []byte) {
	if len(piece) == 0 {
		return
	}

	r.start()
	r.part.state = partFilled
	if r.verifiesPart() {
		r.verified.text = append(r.verified.text, piece...)
	}

	e := item.Event{Step: item.Delta, Kind: r.part.kind, Text: piece, Call: r.part.call}
	if r.part.kind == item.Answer {
		e.Logprobs = r.logprobs.show(len(piece))
	}
	r.emit(e)
}

// start emits the part's Start, once.
func (r *Reader) start() {
	if r.part.state != partUnseen {
		return
	}
	r.part.state = partStarted
	// Reasoning alone is no reply: a withheld call may still become the answer.
	r.shown = r.shown || r.part.kind != item.Reasoning
	if r.shown {
		r.withheld = nil
	}
	r.emit(item.Event{Step: item.Start, Kind: r.part.kind, Call: r.part.call})
}

// endPart ends the part.
func (r *Reader) endPart() {
	if r.part.kind == item.Answer && !r.ending.stopped {
		r.delta(r.stops.flush())
	}

	if r.part.repairer != nil {
		r.endArguments(r.part.repairer)
	}

	if r.part.kind == item.Call && !r.part.withheld && !r.ending.truncated {
		if r.part.state != partFilled && !r.part.call.IsCode() {
			r.repaired(repairArguments)
			r.delta([]byte("{}"))
		}
		// The turn ends with its first call where one is the most.
		r.ending.stopped = r.ending.stopped || r.plan.oneCall
	}

	if !r.ending.truncated {
		r.verifyPart()
	}
	if r.part.state != partUnseen {
		r.emit(item.Event{Step: item.End, Kind: r.part.kind, Call: r.part.call, Cut: r.ending.truncated || r.part.cut})
	}

	r.logprobs.clear()
	r.part = part{}
}

// endArguments emits what is held back of a call's arguments.
func (r *Reader) endArguments(a *arguments.Repairer) {
	if r.ending.truncated {
		r.delta(a.Flush())
		return
	}

	// What was cut is not repaired: what is missing would be guessed.
	rest, made, valid := a.End()
	r.delta(rest)
	for kind, found := range made {
		if found {
			r.repaired(arguments.Kind(kind).String()) //nolint:gosec // a few kinds
		}
	}
	if !valid && r.part.state == partFilled {
		r.repaired(repairInvalid)
	}
}

// newCallID returns the id of the call that begins.
func (r *Reader) newCallID(called item.ToolName, found toolset.Address) string {
	id := r.plan.rc.NewID(item.CallPrefix)
	// A name that had to be found is not rendered as it was written.
	if found != toolset.Offered || !r.written.exact {
		return id
	}
	return item.WrittenForm(r.plan.rc.Renderer, r.written.tokens, called).WithMark(id)
}
