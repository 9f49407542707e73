package item

import "github.com/envoy-harmony/envoy-harmony/filter/hosted"

// The statuses of responses and items.
const (
	StatusQueued     = "queued"
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusIncomplete = "incomplete"
	StatusFailed     = "failed"
	StatusCancelled  = "cancelled"
)

// CallPrefix begins the ids of calls.
const CallPrefix = "call_"

// Kind is what an item of the output is.
type Kind uint8

// The kinds of output items.
const (
	Reasoning Kind = iota
	Commentary
	Answer
	Function
	Custom
	MCPCall     // a call of an MCP server's tool
	MCPApproval // such a call that the client has to approve
	MCPList     // the tools of an MCP server
	WebSearch   // a call of the browser
	Code        // a call of the code interpreter
	FileSearch  // a call of the file search
	Image       // a call of the image generation
	ToolSearch  // a call of the tool search
	ToolsFound  // its output, where it was run here
	Shell       // a call of the client's shell
	LocalShell  // such a call of one command
	ApplyPatch  // a change of a file, which the client makes
	Compaction  // the compaction with which a reply begins
	Carrier     // steps of the turn for the client to send back: a reasoning item without text
	Unknown     // a call of a tool that does not exist, which clients do not see
)

// Names are the words in which the events and ids of a kind of item are written.
type Names struct {
	Prefix string // of its id
	Event  string // of the events of its text
	Part   string // the type of its one part; "" if it has none
	Text   string // the member of the done event that has the text
	Step   string // of the events of its tool's progress
	// Of a call of a built-in tool: its type, and the step of it that is made here.
	Type, Doing string
}

var names = [...]Names{
	Reasoning:  {Prefix: "rs_", Event: "response.reasoning_text", Part: "reasoning_text", Text: "text"},
	Commentary: {Prefix: "msg_", Event: "response.output_text", Part: "output_text", Text: "text"},
	Answer:     {Prefix: "msg_", Event: "response.output_text", Part: "output_text", Text: "text"},
	Function:   {Prefix: "fc_", Event: "response.function_call_arguments", Text: "arguments"},
	Custom:     {Prefix: "ctc_", Event: "response.custom_tool_call_input", Text: "input"},
	MCPCall: {
		Prefix: "mcp_",
		Event:  "response.mcp_call_arguments",
		Text:   "arguments",
		Step:   "response.mcp_call",
		Type:   "mcp_call",
	},
	MCPApproval: {Prefix: "mcpr_"},
	MCPList:     {Prefix: "mcpl_", Step: "response.mcp_list_tools"},
	WebSearch: {
		Prefix: "ws_",
		Step:   "response.web_search_call",
		Type:   "web_search_call",
		Doing:  ".searching",
	},
	Code: {
		Prefix: "ci_",
		Event:  "response.code_interpreter_call_code",
		Text:   "code",
		Step:   "response.code_interpreter_call",
		Type:   "code_interpreter_call",
		Doing:  ".interpreting",
	},
	FileSearch: {
		Prefix: "fs_",
		Step:   "response.file_search_call",
		Type:   "file_search_call",
		Doing:  ".searching",
	},
	Image: {
		Prefix: "ig_",
		Step:   "response.image_generation_call",
		Type:   "image_generation_call",
		Doing:  ".generating",
	},
	ToolSearch: {Prefix: "tsc_"},
	ToolsFound: {Prefix: "tso_"},
	Shell:      {Prefix: "sh_", Event: "response.shell_call_command"},
	LocalShell: {Prefix: "lsh_"},
	ApplyPatch: {Prefix: "apc_"},
	Compaction: {Prefix: "cmp_", Step: "response.compaction"},
	Carrier:    {Prefix: "rs_"},
	Unknown:    {},
}

// OpenReasoningEvent is Open Responses' name of the events of reasoning text.
const OpenReasoningEvent = "response.reasoning"

// Names are the words of the kind. They must not be changed.
func (k Kind) Names() *Names { return &names[k] }

// OfBuiltin returns the kind of the items that calls of a built-in tool become: that with the type of
// the tool's row.
func OfBuiltin(b *hosted.Builtin) Kind {
	for kind := range names {
		if names[kind].Type == b.Item {
			return Kind(kind)
		}
	}
	return Unknown
}

// OnlyWhole reports whether clients see the item only when it is complete.
func (k Kind) OnlyWhole() bool {
	switch k {
	case MCPApproval, WebSearch, FileSearch, Image, ToolSearch, ToolsFound, Compaction, Carrier, Unknown:
		return true
	}
	return k.HasAction()
}

// HasAction reports whether the item is a call with an action, which the client runs.
// Such a call has no part that could be run alone.
func (k Kind) HasAction() bool { return k == Shell || k == LocalShell || k == ApplyPatch }

// IsOwn reports whether an item is what the model itself wrote, or belongs to a tool of the client:
// clients that leave out items of the filter's tools send these back.
func (k Kind) IsOwn() bool {
	switch k {
	case Reasoning, Commentary, Function, Custom, ToolSearch, ToolsFound:
		return true
	}
	return k.HasAction()
}

// CutStatus is the status of an item whose tool was not done when the response
// ended, or whose text was cut.
func (k Kind) CutStatus() string {
	if k == Image {
		return StatusFailed
	}
	return StatusIncomplete
}
