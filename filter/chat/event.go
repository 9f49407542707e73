package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// separator separates two messages of the model in one field.
const separator = "\n\n"

// event writes an event of a choice.
func (r *Reply) event(c *choice, e turn.Event) {
	if r.record(e) {
		return
	}
	switch e.Kind {
	case turn.Reasoning:
		if !r.request.options.hideReasoning {
			r.text(c, e, deltaReasoning, &c.hasReasoning, &c.reasoning)
		}
	case turn.Call:
		switch e.Step {
		case turn.Start:
			r.startCall(c, e.Call)
		case turn.Delta:
			r.arguments(c, e)
		}
	default:
		r.text(c, e, deltaContent, &c.hasContent, &c.content)
	}
}

// text writes text to a field of the choice; has reports whether the field has some
// text already.
func (r *Reply) text(c *choice, e turn.Event, kind deltaKind, has *bool, whole *[]byte) {
	text := e.Text
	switch e.Step {
	case turn.Start:
		if !*has {
			return
		}
		text = []byte(separator)
	case turn.End:
		return
	}
	*has = true
	if !r.request.options.stream {
		*whole = jsontext.AppendEscaped(*whole, text)
		c.logprobs = turn.AppendLogprobs(c.logprobs, e.Logprobs)
		return
	}
	r.openDelta(c, kind, nil)
	r.dst = jsontext.AppendEscaped(r.dst, text)
	r.logprobs = turn.AppendLogprobs(r.logprobs, e.Logprobs)
}

// startCall writes the start of a call.
func (r *Reply) startCall(c *choice, call *turn.CalledTool) {
	if !r.request.options.stream {
		c.calls = append(c.calls, calledTool{CalledTool: call})
		return
	}
	r.openDelta(c, deltaCall, call)
}

// arguments writes a piece of a call's arguments.
func (r *Reply) arguments(c *choice, e turn.Event) {
	if !r.request.options.stream {
		call := &c.calls[len(c.calls)-1]
		call.arguments = jsontext.AppendEscaped(call.arguments, e.Text)
		return
	}
	r.openDelta(c, deltaArguments, e.Call)
	r.dst = jsontext.AppendEscaped(r.dst, e.Text)
}
