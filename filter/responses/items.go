package responses

import (
	"encoding/json"

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
	serverItem   // a call of an MCP server's tool
	approvalItem // such a call that the client has to approve
	listItem     // the tools of an MCP server
	searchItem   // a call of the browser
	codeItem     // a call of the code interpreter
	fileItem     // a call of the file search
	imageItem    // a call of the image generation
	unknownItem  // a call of a tool that there is not, which the client is not told of
)

// callPrefix begins the ids of calls.
const callPrefix = "call_"

// itemNames are the words in which one kind of item is told.
type itemNames struct {
	prefix string // of its id
	event  string // of the events of its text
	part   string // the type of its one part, "" if it has none
	text   string // the member of the done event that has the text
	step   string // of the events of its tool's work
}

var namesOfItems = [...]itemNames{
	reasoningItem:  {prefix: "rs_", event: "response.reasoning_text", part: "reasoning_text", text: "text"},
	commentaryItem: {prefix: "msg_", event: "response.output_text", part: "output_text", text: "text"},
	answerItem:     {prefix: "msg_", event: "response.output_text", part: "output_text", text: "text"},
	functionItem:   {prefix: "fc_", event: "response.function_call_arguments", text: "arguments"},
	customItem:     {prefix: "ctc_", event: "response.custom_tool_call_input", text: "input"},
	serverItem:     {prefix: "mcp_", event: "response.mcp_call_arguments", text: "arguments", step: "response.mcp_call"},
	approvalItem:   {prefix: "mcpr_"},
	listItem:       {prefix: "mcpl_", step: "response.mcp_list_tools"},
	searchItem:     {prefix: "ws_", step: "response.web_search_call"},
	codeItem:       {prefix: "ci_", event: "response.code_interpreter_call_code", text: "code", step: "response.code_interpreter_call"},
	fileItem:       {prefix: "fs_", step: "response.file_search_call"},
	imageItem:      {prefix: "ig_", step: "response.image_generation_call"},
	unknownItem:    {},
}

// openReasoningEvent is Open Responses' name of the events of reasoning text.
const openReasoningEvent = "response.reasoning"

func (k itemKind) names() *itemNames { return &namesOfItems[k] }

// kindOf is the item that a part of the turn becomes.
func (r *Reply) kindOf(e turn.Event) itemKind {
	switch e.Kind {
	case turn.Reasoning:
		return reasoningItem
	case turn.Preamble:
		return commentaryItem
	case turn.Call:
		return r.kindOfCall(e.Call)
	}
	return answerItem
}

// kindOfCall is the item that a call becomes. Where no other model call can
// follow, it is for the client to tell the model that there is no such tool.
func (r *Reply) kindOfCall(call *turn.CalledTool) itemKind {
	switch h := r.call.hosted[hostedSpace{call.Namespace, call.Builtin}]; {
	case h != nil && h.builtin != nil:
		return h.builtin.item
	case h != nil && h.asks(h.fromModel(call.Name)):
		return approvalItem
	case h != nil:
		return serverItem
	case r.call.custom[toolName{call.Namespace, call.Name}]:
		return customItem
	case r.steps && call.Namespace == "":
		return unknownItem
	}
	return functionItem
}

// cutStatus is the status of an item whose tool was not done when the response
// ended, or whose text was cut.
func (it *outputItem) cutStatus() string {
	if it.kind == imageItem {
		return statusFailed
	}
	return statusIncomplete
}

// quiet tells whether the client is told nothing of the item before it is
// complete.
func (it *outputItem) quiet() bool {
	switch it.kind {
	case approvalItem, searchItem, fileItem, imageItem, unknownItem:
		return true
	}
	return false
}

// append appends the item's JSON. In progress it has no text yet, but for a
// request for approval, which is told whole.
func (it *outputItem) append(dst []byte, status string) []byte {
	text := it.text
	begun := status == statusInProgress
	if begun && it.kind != approvalItem {
		text = nil
	}
	switch it.kind {
	case serverItem, approvalItem, listItem:
		return it.appendHosted(dst, status, text)
	case searchItem, codeItem, fileItem, imageItem:
		return it.appendBuiltin(dst, status, text)
	case reasoningItem:
		dst = it.appendHead(dst, "reasoning", status)
		dst = append(dst, `,"summary":[`...)
		if it.summary && !begun {
			dst = appendPart(dst, "summary_text", text, nil)
		}
		dst = append(dst, `],"content":[`...)
		if !begun {
			dst = appendPart(dst, "reasoning_text", text, nil)
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
		dst = appendPart(dst, "output_text", text, it.annotations)
	}
	return append(dst, `]}`...)
}

func (it *outputItem) appendHead(dst []byte, kind, status string) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","id":`...)
	dst = jsontext.AppendString(dst, it.id)
	return append(append(append(dst, `,"status":"`...), status...), '"')
}

// appendPart appends a part of an item's content; text is escaped already.
func appendPart(dst []byte, kind string, text []byte, annotations []json.RawMessage) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","text":"`...)
	dst = append(append(dst, text...), '"')
	if kind == "output_text" {
		dst = append(dst, `,"annotations":[`...)
		for i, a := range annotations {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, a...)
		}
		dst = append(dst, `],"logprobs":[]`...)
	}
	return append(dst, '}')
}

// appendHosted appends the JSON of an item about an MCP server. Members that are
// not known are left out: some clients refuse nulls there.
func (it *outputItem) appendHosted(dst []byte, status string, text []byte) []byte {
	switch it.kind {
	case listItem:
		dst = jsontext.AppendString(append(dst, `{"type":"mcp_list_tools","id":`...), it.id)
		dst = jsontext.AppendString(append(dst, `,"server_label":`...), it.hosted.label)
		dst = it.appendTools(append(dst, `,"tools":[`...))
		dst = append(dst, ']')
	case approvalItem:
		dst = jsontext.AppendString(append(dst, `{"type":"mcp_approval_request","id":`...), it.id)
		dst = it.appendCalled(dst, text)
	default:
		dst = it.appendCalled(it.appendHead(dst, "mcp_call", status), text)
		if it.approval != "" {
			dst = jsontext.AppendString(append(dst, `,"approval_request_id":`...), it.approval)
		}
	}
	switch {
	case it.result == nil:
	case it.result.Error != "" && it.kind == serverItem:
		dst = append(dst, `,"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":`...)
		dst = append(jsontext.AppendString(dst, it.result.Error), `}]}`...)
	case it.result.Error != "" && it.kind == listItem:
		dst = jsontext.AppendString(append(dst, `,"error":`...), it.result.Error)
	case it.kind == serverItem:
		dst = jsontext.AppendString(append(dst, `,"output":`...), it.result.Text)
	}
	return append(dst, '}')
}

func (it *outputItem) appendCalled(dst, text []byte) []byte {
	dst = jsontext.AppendString(append(dst, `,"server_label":`...), it.call.Namespace)
	dst = jsontext.AppendString(append(dst, `,"name":`...), it.call.Name)
	return append(append(append(dst, `,"arguments":"`...), text...), '"')
}

func (it *outputItem) appendTools(dst []byte) []byte {
	for i := range it.hosted.listed {
		if i > 0 {
			dst = append(dst, ',')
		}
		t := &it.hosted.listed[i]
		dst = jsontext.AppendString(append(dst, `{"name":`...), t.Name)
		dst = jsontext.AppendString(append(dst, `,"description":`...), t.Description)
		dst = appendRaw(append(dst, `,"input_schema":`...), string(t.InputSchema), `{"type":"object","properties":{}}`)
		if t.Annotations != nil {
			dst = jsontext.AppendCompact(append(dst, `,"annotations":`...), string(t.Annotations))
		}
		dst = append(dst, '}')
	}
	return dst
}
