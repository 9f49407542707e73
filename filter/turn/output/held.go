package output

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/arguments"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// heldPart is a message whose kind its end tells, so that its text waits for it. There are
// three: a message to nobody whom the request knows, which is a call if it ends as one;
// what looks like a preamble of JSON, for the same reason; and a call of several tools at
// once.
//
// What each becomes, by how its message ends:
//
//	                       <|call|>              another end
//	to nobody              an unknown tool's     text, and the recipient before it
//	                                             if it was a word of the text
//	a preamble of JSON     an unknown tool's     a preamble
//	several tools at once  their calls, or an unknown tool's, whatever the end if the
//	                       recipient is marked as one; else as to nobody
//
// What is longer than maxHeld is decided as by another end.
type heldPart struct {
	// Of a message to nobody; nil: it has no recipient.
	header *harmony.Header
	// If it is no call.
	kind item.Kind

	// unknown is the tool that is called, unless it is several.
	unknown item.ToolName
	// Its text may be the calls of several tools.
	parallel bool
	// It is a call with every end.
	sure bool

	// What waits.
	text []byte
	// object says of what looks like a preamble that its text begins with a bracket: it waits
	// to its end.
	object bool
}

// maxBlank is how much white space may stand before an object, in bytes. More is text, so
// that nobody waits for a bracket that never comes.
const maxBlank = 256

// maxHeld bounds the text that waits, in bytes: a stream takes no room for what it keeps.
// What is longer is decided as if its end told nothing.
const maxHeld = 256 << 10

// hold lets the text of the part wait for its end.
func (r *Reader) hold(held *heldPart) {
	held.kind = item.KindOf(held.header.Channel)
	// The parser uses its header again for the next message.
	header := *held.header
	held.header = &header
	r.part.kind, r.part.held = held.kind, held
}

// holds reports whether the text of the part waits for its end. A preamble in JSON is
// likely a call without a recipient.
func (r *Reader) holds(text []byte) bool {
	if r.part.held != nil {
		return true
	}
	if r.part.kind != item.Preamble || r.part.state != partUnseen || r.part.settled || !r.calling() {
		return false
	}

	held := &heldPart{kind: item.Preamble}
	if !held.mayBeObject(text) {
		return false
	}
	held.unknown = r.plan.tools.UnknownTool("")
	r.part.held = held

	return true
}

// wait takes a piece of the text that waits. A preamble that turns out to be no JSON waits no
// longer.
func (r *Reader) wait(text []byte) {
	held := r.part.held
	waits := held.header != nil || held.mayBeObject(text)

	held.text = append(held.text, text...)
	switch {
	case !waits:
		r.part.held, r.part.settled = nil, true
		r.text(held.text)
	case len(held.text) > maxHeld:
		// Several calls are never made of a part of their text.
		held.parallel = false
		r.settle(0)
	}
}

// mayBeObject reports whether the text is the beginning of a JSON object, if this piece comes
// next. It looks at a piece once, and decides the same however the text is cut.
func (h *heldPart) mayBeObject(piece []byte) bool {
	if h.object {
		return true
	}

	// All that came before is white space.
	rest := bytes.TrimLeft(piece, " \t\r\n")
	if len(h.text)+len(piece)-len(rest) > maxBlank {
		return false
	}
	h.object = len(rest) > 0 && rest[0] == '{'

	return h.object || len(rest) == 0
}

// settle decides what a part is whose text has waited for its end, and emits the text. A
// message that ends with <|call|> is a call.
func (r *Reader) settle(end harmony.Token) {
	held := r.part.held
	if held == nil {
		return
	}
	r.part.held, r.part.settled = nil, true

	switch {
	case held.parallel && (held.sure || end == harmony.TokenCall) && r.settleParallel(held.text):
		return
	case held.sure, end == harmony.TokenCall:
		r.beginCall(held.unknown, toolset.Unknown, "")
	case held.header != nil:
		r.repaired(repairRecipient)
		if held.header.Unmarked {
			// It was a word of the text.
			r.text([]byte(held.header.Recipient + " "))
		}
	}
	r.text(held.text)
}

// maxParallel bounds the calls that are made in one.
const maxParallel = 128

// settleParallel makes the calls that are the arguments of the part, in their order, and
// leaves the last one open. It makes none and returns false if one of them is no call of a
// tool of the request with an object.
func (r *Reader) settleParallel(text []byte) bool {
	// What was cut may have had more calls.
	if r.ending.truncated {
		return false
	}

	repairer := arguments.New("")
	whole := append([]byte(nil), repairer.Push(text)...)
	rest, _, valid := repairer.End()
	if !valid {
		return false
	}

	calls := parallelCalls(r.plan.tools, append(whole, rest...))
	if len(calls) == 0 {
		return false
	}
	if r.plan.oneCall {
		calls = calls[:1]
	}

	// The calls share the tokens of one message, which the first of them counts.
	for i := range calls {
		if i > 0 {
			r.count()
			counted := r.part.counted
			r.endPart()
			r.part = part{counted: counted}
		}
		r.part.settled = true
		r.beginCall(calls[i].tool, toolset.Respelled, toolset.TypeJSON)
		// One that is excluded ends the choice.
		if r.ending.stopped {
			break
		}
		r.text([]byte(calls[i].arguments))
	}
	return true
}

// parallelCall is one of several calls that are made in one.
type parallelCall struct {
	tool      item.ToolName
	arguments string
}

// parallelCalls returns the calls of a JSON object; nil if it has something else than calls
// of tools of the request with objects.
func parallelCalls(tools *toolset.Set, text []byte) []parallelCall {
	uses := onlyMember(gjson.ParseBytes(text), "tool_uses")
	if !uses.IsArray() {
		return nil
	}

	var calls []parallelCall
	for use := range jsontext.List(uses) {
		// One that is no call makes the whole one call of a tool that nobody knows: to make the others
		// would change what the model wanted.
		called, found := tools.Resolve(onlyMember(use, "recipient_name").Str)
		parameters := onlyMember(use, "parameters")
		if found != toolset.Offered && found != toolset.Respelled || called.IsCode() || !parameters.IsObject() ||
			len(calls) == maxParallel {
			return nil
		}
		calls = append(calls, parallelCall{called, parameters.Raw})
	}
	return calls
}

// onlyMember returns the member of an object with a name; nothing if it is there twice: one of
// the two is meant.
func onlyMember(object gjson.Result, name string) (only gjson.Result) {
	n := 0
	object.ForEach(func(key, value gjson.Result) bool {
		if key.Str == name {
			only = value
			n++
		}
		return n < 2
	})
	if n != 1 {
		return gjson.Result{}
	}
	return only
}
