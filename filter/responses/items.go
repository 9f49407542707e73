package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The states of responses and items.
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// itemKind is what an item of the output is.
type itemKind uint8

const (
	reasoningItem itemKind = iota
	commentaryItem
	answerItem
	functionItem
	customItem
)

// itemNames are the words in which one kind of item is told.
type itemNames struct {
	prefix string // of its id
	event  string // of the events of its text
	part   string // the type of its one part, "" if it has none
	text   string // the member of the done event that has the text
}

var namesOfItems = [...]itemNames{
	reasoningItem:  {"rs_", "response.reasoning_text", "reasoning_text", "text"},
	commentaryItem: {"msg_", "response.output_text", "output_text", "text"},
	answerItem:     {"msg_", "response.output_text", "output_text", "text"},
	functionItem:   {"fc_", "response.function_call_arguments", "", "arguments"},
	customItem:     {"ctc_", "response.custom_tool_call_input", "", "input"},
}

// openReasoningEvent is Open Responses' name of the events of reasoning text.
const openReasoningEvent = "response.reasoning"

func (k itemKind) names() *itemNames { return &namesOfItems[k] }

// kindOf is the item that a part of the turn becomes.
func (c *Call) kindOf(e turn.Event) itemKind {
	switch e.Kind {
	case turn.Reasoning:
		return reasoningItem
	case turn.Preamble:
		return commentaryItem
	case turn.Call:
		if c.custom[toolName{e.Call.Namespace, e.Call.Name}] {
			return customItem
		}
		return functionItem
	}
	return answerItem
}

// append appends the item's JSON. In progress it has no text yet.
func (it *outputItem) append(dst []byte, status string) []byte {
	text := it.text
	begun := status == statusInProgress
	if begun {
		text = nil
	}
	switch it.kind {
	case reasoningItem:
		dst = it.appendHead(dst, "reasoning", status)
		dst = append(dst, `,"summary":[`...)
		if it.summary && !begun {
			dst = appendPart(dst, "summary_text", text)
		}
		dst = append(dst, `],"content":[`...)
		if !begun {
			dst = appendPart(dst, "reasoning_text", text)
		}
		dst = append(dst, ']')
		if it.sealed != "" && !begun {
			dst = jsontext.AppendString(append(dst, `,"encrypted_content":`...), it.sealed)
		}
		return append(dst, '}')
	case functionItem, customItem:
		kind, member := "function_call", `,"arguments":"`
		if it.kind == customItem {
			kind, member = "custom_tool_call", `,"input":"`
		}
		dst = it.appendHead(dst, kind, status)
		dst = jsontext.AppendString(append(dst, `,"call_id":`...), it.call.ID)
		dst = jsontext.AppendString(append(dst, `,"name":`...), it.call.Name)
		if ns := it.call.Namespace; ns != "" && ns != turn.FunctionsNamespace {
			dst = jsontext.AppendString(append(dst, `,"namespace":`...), ns)
		}
		return append(append(append(dst, member...), text...), `"}`...)
	}
	phase := "final_answer"
	if it.kind == commentaryItem {
		phase = "commentary"
	}
	dst = it.appendHead(dst, "message", status)
	dst = append(append(append(dst, `,"role":"assistant","phase":"`...), phase...), `","content":[`...)
	if !begun {
		dst = appendPart(dst, "output_text", text)
	}
	return append(dst, `]}`...)
}

func (it *outputItem) appendHead(dst []byte, kind, status string) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","id":`...)
	dst = jsontext.AppendString(dst, it.id)
	return append(append(append(dst, `,"status":"`...), status...), '"')
}

// appendPart appends a part of an item's content; text is escaped already.
func appendPart(dst []byte, kind string, text []byte) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","text":"`...)
	dst = append(append(dst, text...), '"')
	if kind == "output_text" {
		dst = append(dst, `,"annotations":[],"logprobs":[]`...)
	}
	return append(dst, '}')
}
