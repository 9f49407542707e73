package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// separator separates two messages of the model in one field.
const separator = "\n\n"

// Open begins a part: a call, or more text in a field of the choice.
func (e *encoder) Open(dst []byte, p *reply.Part) []byte {
	c := &e.choices[p.Choice.Index]
	switch {
	case p.Kind == turn.Call:
		// The call before may have been cut in the middle of its wrapping.
		c.unwrap = turn.Unwrapper{}
		if !e.request.options.stream {
			c.calls = append(c.calls, calledTool{CalledTool: p.Call})
			return dst
		}
		return e.openDelta(dst, p.Choice, deltaCall, p.Call)

	// The model may write several messages of a kind, and a choice has one field for them all.
	case p.Kind == turn.Reasoning && c.hasReasoning, p.Kind != turn.Reasoning && c.hasContent:
		return e.appendText(dst, p, []byte(separator))
	}
	return dst
}

// Delta adds text to the part.
func (e *encoder) Delta(dst []byte, p *reply.Part, text []byte) []byte {
	switch {
	case p.Kind != turn.Call:
		return e.appendText(dst, p, text)
	case e.custom(p.Call):
		e.plain = e.choices[p.Choice.Index].unwrap.Push(e.plain[:0], text)
		text = e.plain
	}
	return e.appendArguments(dst, p, text)
}

// Close adds the last text to the part, and what is left of a custom tool's text.
func (e *encoder) Close(dst []byte, p *reply.Part, text []byte, _ bool) []byte {
	if len(text) > 0 {
		dst = e.Delta(dst, p, text)
	}
	if p.Kind == turn.Call && e.custom(p.Call) {
		e.plain = e.choices[p.Choice.Index].unwrap.Flush(e.plain[:0])
		dst = e.appendArguments(dst, p, e.plain)
	}
	return dst
}

// appendText appends text to a field of the choice: content or reasoning.
func (e *encoder) appendText(dst []byte, p *reply.Part, text []byte) []byte {
	c := &e.choices[p.Choice.Index]
	kind, has, whole := deltaContent, &c.hasContent, &c.content
	if p.Kind == turn.Reasoning {
		// It is generated and counted all the same: gpt-oss cannot do without.
		if e.request.options.hideReasoning {
			return dst
		}
		kind, has, whole = deltaReasoning, &c.hasReasoning, &c.reasoning
	}
	*has = true

	if !e.request.options.stream {
		*whole = jsontext.AppendEscaped(*whole, text)
		c.logprobs = append(c.logprobs, p.Logprobs...)
		return dst
	}
	dst = e.openDelta(dst, p.Choice, kind, nil)
	e.logprobs = append(e.logprobs, p.Logprobs...)
	return jsontext.AppendEscaped(dst, text)
}

// appendArguments appends a piece of a call's arguments.
func (e *encoder) appendArguments(dst []byte, p *reply.Part, text []byte) []byte {
	switch {
	// A piece can be nothing but the JSON around a custom tool's text.
	case len(text) == 0:
		return dst
	case e.request.options.stream:
		return jsontext.AppendEscaped(e.openDelta(dst, p.Choice, deltaArguments, p.Call), text)
	}

	calls := e.choices[p.Choice.Index].calls
	called := &calls[len(calls)-1]
	called.arguments = jsontext.AppendEscaped(called.arguments, text)
	return dst
}

// custom reports whether a call is one of a custom tool.
func (e *encoder) custom(call *turn.CalledTool) bool {
	return call.Namespace == turn.FunctionsNamespace && e.request.options.custom[call.Name]
}
