package write

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// block is the content block that is being written.
type block struct {
	// text is the text of reasoning, to be sealed, or the arguments of a call that have
	// been read and are not written yet.
	text  []byte
	input input          // of a call
	hosts *hosted.Server // of a call that the filter makes; nil: the client makes it
}

// Open begins the content block of a part.
func (e *encoder) Open(dst []byte, p *reply.Part) []byte {
	if e.hides(p) {
		return dst
	}

	b := &e.block
	b.text, b.hosts = b.text[:0], nil
	b.input.reset()
	call := p.Call
	if p.Maker == reply.ByFilter && e.request.Tools.Search.Tool(call) == nil {
		// Clients know the tool by its server's name, not by the one that the model was offered.
		b.hosts = e.request.Tools.Server(call)
		call = b.hosts.Named(call)
	}

	e.blocks++
	if !e.request.Options.Stream {
		e.whole = appendBlockHead(e.whole, p, b.hosts, call)
		if p.Kind != turn.Call {
			e.whole = append(e.whole, '"')
		}
		return dst
	}
	dst = append(e.beginBlockEvent(dst, "content_block_start"), `,"content_block":`...)
	dst = appendBlockHead(dst, p, b.hosts, call)
	return endEvent(append(dst, emptyBlock(p.Kind)...))
}

// hides reports whether the client does not see a part.
func (e *encoder) hides(p *reply.Part) bool {
	return p.Kind == turn.Reasoning && e.request.Options.Thinking == request.Hidden
}

// appendBlockHead appends a content block up to the value of its last member: its
// text or input. The text of reasoning is not the last one in an object.
func appendBlockHead(dst []byte, p *reply.Part, s *hosted.Server, call *turn.CalledTool) []byte {
	switch p.Kind {
	case turn.Reasoning:
		return append(dst, `{"type":"thinking","thinking":`...)
	case turn.Call:
		return appendCallHead(dst, p.Maker, s, call)
	}
	return append(dst, `{"type":"text","text":`...)
}

// emptyBlock is the rest of a content block without text or input.
func emptyBlock(kind turn.Kind) string {
	switch kind {
	case turn.Reasoning:
		return `"","signature":""}`
	case turn.Call:
		return `{}}`
	}
	return `""}`
}

// beginBlockEvent begins an event of the content block.
func (e *encoder) beginBlockEvent(dst []byte, name string) []byte {
	dst = append(beginEvent(dst, name), `,"index":`...)
	return strconv.AppendInt(dst, int64(e.blocks-1), 10)
}

// Delta adds a piece of text to the block.
func (e *encoder) Delta(dst []byte, p *reply.Part, text []byte) []byte {
	b := &e.block
	switch {
	case e.hides(p):
	// Clients get an object with the code, the model writes the code alone: it is escaped whole.
	case p.Kind == turn.Call && e.isHostedCode(p):
	case p.Kind == turn.Call:
		b.text = b.input.add(b.text, text)
		dst = e.flushInput(dst)
	case p.Kind == turn.Reasoning:
		// The signature has the text in any case: with it the client sends the reasoning back.
		b.text = append(b.text, text...)
		if e.request.Options.Thinking != request.Omitted {
			dst = e.appendText(dst, p.Kind, text)
		}
	default:
		dst = e.appendText(dst, p.Kind, text)
	}
	return dst
}

// isHostedCode reports whether a part is code that the filter runs.
func (e *encoder) isHostedCode(p *reply.Part) bool {
	return p.Maker == reply.ByFilter && p.Call.IsCode()
}

// flushInput writes the arguments that have been read: into a stream at once, into an
// object at the end of the call.
func (e *encoder) flushInput(dst []byte) []byte {
	b := &e.block
	if !e.request.Options.Stream || len(b.text) == 0 {
		return dst
	}

	dst = e.appendText(dst, turn.Call, b.text)
	b.text = b.text[:0]
	return dst
}

// appendText appends a piece of the block's text.
func (e *encoder) appendText(dst []byte, kind turn.Kind, text []byte) []byte {
	switch {
	case len(text) == 0:
		return dst
	case !e.request.Options.Stream:
		e.whole = jsontext.AppendEscaped(e.whole, text)
		return dst
	}

	dst = e.beginBlockEvent(dst, "content_block_delta")
	switch kind {
	case turn.Reasoning:
		dst = append(dst, `,"delta":{"type":"thinking_delta","thinking":"`...)
	case turn.Call:
		dst = append(dst, `,"delta":{"type":"input_json_delta","partial_json":"`...)
	default:
		dst = append(dst, `,"delta":{"type":"text_delta","text":"`...)
	}
	dst = jsontext.AppendEscaped(dst, text)
	return append(dst, "\"}}\n\n"...)
}

// Close adds the last text to the block, and ends it.
func (e *encoder) Close(dst []byte, p *reply.Part, text []byte, cut bool) []byte {
	if e.hides(p) {
		return dst
	}

	if p.Kind == turn.Call {
		dst = e.closeInput(dst, p, text, cut)
	} else {
		dst = e.Delta(dst, p, text)
	}

	if !e.request.Options.Stream {
		e.whole = e.appendBlockEnd(e.whole, p.Kind)
		return dst
	}
	// The signature seals the whole text, and so is the last delta of its block.
	if p.Kind == turn.Reasoning {
		dst = e.beginBlockEvent(dst, "content_block_delta")
		dst = append(dst, `,"delta":{"type":"signature_delta","signature":`...)
		dst = endEvent(append(jsontext.AppendString(dst, e.seal(seal.Reasoning, e.block.text)), '}'))
	}
	return endEvent(e.beginBlockEvent(dst, "content_block_stop"))
}

// closeInput writes the last arguments of a call.
func (e *encoder) closeInput(dst []byte, p *reply.Part, text []byte, cut bool) []byte {
	b := &e.block
	switch {
	case e.isHostedCode(p) && cut:
		return dst
	case e.isHostedCode(p):
		b.text = append(b.text, hosted.CodeArguments(string(p.Whole))...)
		return e.flushInput(dst)
	}

	// What was cut stays as it is: the call is not made.
	b.text = b.input.add(b.text, text)
	if !cut || b.input.state == inputDone {
		b.text = b.input.end(b.text)
	}
	return e.flushInput(dst)
}

// appendBlockEnd ends a block of a whole object.
func (e *encoder) appendBlockEnd(dst []byte, kind turn.Kind) []byte {
	switch kind {
	case turn.Reasoning:
		dst = jsontext.AppendString(append(dst, `","signature":`...), e.seal(seal.Reasoning, e.block.text))
	case turn.Call:
		dst = appendInput(dst, e.block.text)
	default:
		dst = append(dst, '"')
	}
	return append(dst, "},"...)
}

// appendInput appends the input of a call: an object, which is empty if the call was
// cut before its end.
func appendInput(dst, arguments []byte) []byte {
	if text := string(arguments); jsontext.IsObject(text) {
		return jsontext.AppendCompact(dst, text)
	}
	return append(dst, "{}"...)
}

// appendBlock appends a content block that is complete.
func (e *encoder) appendBlock(dst, object []byte) []byte {
	e.blocks++
	if !e.request.Options.Stream {
		e.whole = append(append(e.whole, object...), ',')
		return dst
	}

	dst = append(e.beginBlockEvent(dst, "content_block_start"), `,"content_block":`...)
	dst = endEvent(append(dst, object...))
	return endEvent(e.beginBlockEvent(dst, "content_block_stop"))
}
