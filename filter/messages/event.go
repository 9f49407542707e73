package messages

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// block is the content block that is being written.
type block struct {
	kind  turn.Kind // 0: none is open
	count int       // of blocks so far
	delta bool      // a stream's content_block_delta is open: text can be appended to it
	text  []byte    // of reasoning, to be sealed; of a call, the arguments that can be passed on
	input input     // of a call

	server *hosted.Server // of a call that the filter makes
}

// event writes an event of the reply. Each part of the reply is a content block.
func (r *Reply) event(e turn.Event) {
	if r.record(e) || e.Kind == turn.Reasoning && r.request.options.thinking == hidden {
		return
	}
	if s := r.request.hostedOf(e); s != nil {
		r.runs.event(s, e)
		return
	}
	switch e.Step {
	case turn.Start:
		r.startBlock(e)
	case turn.Delta:
		r.addText(e)
	case turn.End:
		if e.Kind == turn.Call {
			r.endInput(e.Cut)
		}
		r.endBlock()
	}
}

func (r *Reply) startBlock(e turn.Event) {
	r.closeDelta()
	b := &r.blocks
	b.kind, b.text = e.Kind, b.text[:0]
	b.input.reset()
	if r.request.options.stream {
		r.dst = append(r.dst, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
		r.dst = strconv.AppendInt(r.dst, int64(b.count), 10)
		r.dst = append(r.dst, `,"content_block":`...)
		r.dst = appendBlockHead(r.dst, b.server, e)
		switch e.Kind {
		case turn.Reasoning:
			r.dst = append(r.dst, `"","signature":""}`...)
		case turn.Call:
			r.dst = append(r.dst, `{}}`...)
		default:
			r.dst = append(r.dst, `""}`...)
		}
		r.dst = append(r.dst, "}\n\n"...)
	} else {
		r.whole = appendBlockHead(r.whole, b.server, e)
		if e.Kind != turn.Call {
			r.whole = append(r.whole, '"')
		}
	}
	b.count++
}

// appendBlockHead appends a content block up to the value of its last member: its
// text or input. The text of reasoning is not the last one in an object.
func appendBlockHead(dst []byte, s *hosted.Server, e turn.Event) []byte {
	switch e.Kind {
	case turn.Reasoning:
		return append(dst, `{"type":"thinking","thinking":`...)
	case turn.Call:
		return appendCallHead(dst, s, e.Call)
	}
	return append(dst, `{"type":"text","text":`...)
}

// writeBlock writes a content block that is complete.
func (r *Reply) writeBlock(object []byte) {
	if r.request.options.stream {
		r.dst = append(r.dst, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
		r.dst = strconv.AppendInt(r.dst, int64(r.blocks.count), 10)
		r.dst = append(append(r.dst, `,"content_block":`...), object...)
		r.dst = append(r.dst, "}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
		r.dst = strconv.AppendInt(r.dst, int64(r.blocks.count), 10)
		r.dst = append(r.dst, "}\n\n"...)
	} else {
		r.whole = append(append(r.whole, object...), ',')
	}
	r.blocks.count++
}

// addText adds a piece of text to the block.
func (r *Reply) addText(e turn.Event) {
	b, text := &r.blocks, e.Text
	switch b.kind {
	case turn.Call:
		r.addInput(b.input.add(b.text, e.Text))
		return
	case turn.Reasoning:
		b.text = append(b.text, text...)
		if r.request.options.thinking == omitted {
			return
		}
	}
	if r.request.options.stream {
		r.openDelta()
		r.dst = jsontext.AppendEscaped(r.dst, text)
	} else {
		r.whole = jsontext.AppendEscaped(r.whole, text)
	}
}

// addInput writes arguments of a call: a stream at once, an object at the end of the
// call.
func (r *Reply) addInput(text []byte) {
	b := &r.blocks
	if r.request.options.stream && len(text) > 0 {
		r.openDelta()
		r.dst = jsontext.AppendEscaped(r.dst, text)
		text = text[:0]
	}
	b.text = text
}

// endInput ends the arguments of a call. Those that are cut stay as they are.
func (r *Reply) endInput(cut bool) {
	in := &r.blocks.input
	if !cut || in.state == inputDone {
		r.addInput(in.end(r.blocks.text))
	}
}

// openDelta ensures that a delta of the block is open: the text of a chunk of the
// engine goes into one event as long as it belongs to the same block.
func (r *Reply) openDelta() {
	b := &r.blocks
	if b.delta {
		return
	}
	b.delta = true
	r.beginDelta()
	switch b.kind {
	case turn.Reasoning:
		r.dst = append(r.dst, `{"type":"thinking_delta","thinking":"`...)
	case turn.Call:
		r.dst = append(r.dst, `{"type":"input_json_delta","partial_json":"`...)
	default:
		r.dst = append(r.dst, `{"type":"text_delta","text":"`...)
	}
}

func (r *Reply) beginDelta() {
	r.dst = append(r.dst, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	r.dst = strconv.AppendInt(r.dst, int64(r.blocks.count-1), 10)
	r.dst = append(r.dst, `,"delta":`...)
}

// closeDelta ends the delta that is open, if one is.
func (r *Reply) closeDelta() {
	if r.blocks.delta {
		r.blocks.delta = false
		r.dst = append(r.dst, "\"}}\n\n"...)
	}
}

// endBlock ends the block.
func (r *Reply) endBlock() {
	b := &r.blocks
	if r.request.options.stream {
		r.closeDelta()
		if b.kind == turn.Reasoning {
			r.beginDelta()
			r.dst = jsontext.AppendString(append(r.dst, `{"type":"signature_delta","signature":`...), r.seal(seal.Reasoning, b.text))
			r.dst = append(r.dst, "}}\n\n"...)
		}
		r.dst = append(r.dst, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
		r.dst = strconv.AppendInt(r.dst, int64(b.count-1), 10)
		r.dst = append(r.dst, "}\n\n"...)
	} else {
		switch b.kind {
		case turn.Reasoning:
			r.whole = jsontext.AppendString(append(r.whole, `","signature":`...), r.seal(seal.Reasoning, b.text))
		case turn.Call:
			r.whole = appendInput(r.whole, b.text)
		default:
			r.whole = append(r.whole, '"')
		}
		r.whole = append(r.whole, "},"...)
	}
	b.kind = 0
}

// appendInput appends the input of a call: an object, which is empty if the call was
// cut before its end.
func appendInput(dst, arguments []byte) []byte {
	if text := string(arguments); jsontext.IsObject(text) {
		return jsontext.AppendCompact(dst, text)
	}
	return append(dst, "{}"...)
}
