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
		case turn.End:
			r.endCall(c, e.Call)
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
	c.unwrap = turn.Unwrapper{}
	if !r.request.options.stream {
		c.calls = append(c.calls, calledTool{CalledTool: call})
		return
	}
	r.openDelta(c, deltaCall, call)
}

// arguments writes a piece of a call's arguments.
func (r *Reply) arguments(c *choice, e turn.Event) {
	text := e.Text
	if r.custom(e.Call) {
		r.plain = c.unwrap.Push(r.plain[:0], text)
		text = r.plain
	}
	r.argumentText(c, e.Call, text)
}

// endCall writes what is left of a custom tool's text.
func (r *Reply) endCall(c *choice, call *turn.CalledTool) {
	if r.custom(call) {
		r.plain = c.unwrap.Flush(r.plain[:0])
		r.argumentText(c, call, r.plain)
	}
}

func (r *Reply) argumentText(c *choice, call *turn.CalledTool, text []byte) {
	switch {
	case len(text) == 0:
	case r.request.options.stream:
		r.openDelta(c, deltaArguments, call)
		r.dst = jsontext.AppendEscaped(r.dst, text)
	default:
		called := &c.calls[len(c.calls)-1]
		called.arguments = jsontext.AppendEscaped(called.arguments, text)
	}
}

// custom reports whether a call is one of a custom tool.
func (r *Reply) custom(call *turn.CalledTool) bool {
	return call.Namespace == turn.FunctionsNamespace && r.request.options.custom[call.Name]
}
