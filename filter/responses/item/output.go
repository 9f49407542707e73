package item

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Output is an item of a response's output.
type Output struct {
	Kind        Kind
	ID          string
	Call        *turn.CalledTool // of a call: the tool by the client's names
	Text        []byte           // as it is between the quotes of JSON
	Annotations []json.RawMessage
	Logprobs    []byte // of an answer: the entries of [turn.AppendLogprobs]
	Summary     bool   // the text of reasoning is its summary, and not its content
	Sealed      string // the text of reasoning, sealed; "": it is not asked for. Of a carrier, its steps
	Action      []byte // of a call with an action: its JSON

	// Of calls that are made here:
	Result      *tools.Result // nil until the tool is done
	Approval    string        // the id of the request for approval of the call
	Arguments   gjson.Result  // of a call of a built-in tool
	Address     string        // of the page that the browser was asked for
	Container   string        // where its code runs
	ShowOutputs bool          // the client wants what the code has printed

	Named  bool   // of a function: the client has it in a namespace of the name functions
	Client bool   // of a search for tools: the client runs it
	Found  []byte // by such a search: the tools, as the elements of an array

	// Of a list of tools:
	Server string
	Tools  []tools.Tool
}

// PlainText is the item's text as the model wrote it.
func (o *Output) PlainText() string {
	var text string
	// What was escaped here can be read.
	_ = json.Unmarshal(append(append([]byte{'"'}, o.Text...), '"'), &text)
	return text
}

// EndStatus is the status of an item whose tool is done. Code that raises an
// error has run.
func (o *Output) EndStatus() string {
	if o.Result.Error != "" && (o.Kind != Code || len(o.Result.Content) == 0) {
		return StatusFailed
	}
	return StatusCompleted
}

// Append appends the item's JSON. In progress it has no text yet, except a
// request for approval, which clients see only whole.
func (o *Output) Append(dst []byte, status string) []byte {
	text := o.Text
	begun := status == StatusInProgress
	// The text comes in deltas. Those two have none, so that their first event has the text.
	if begun && o.Kind != MCPApproval && o.Kind != ToolSearch {
		text = nil
	}

	switch o.Kind {
	case MCPCall, MCPApproval, MCPList:
		return o.appendMCP(dst, status, text)
	case WebSearch, Code, FileSearch, Image:
		return o.appendBuiltin(dst, status, text)
	case Reasoning:
		return o.appendReasoning(dst, status, text, begun)
	case Function, Custom:
		return o.appendCall(dst, status, text)
	case Compaction:
		dst = jsontext.AppendString(append(dst, `{"type":"compaction","id":`...), o.ID)
		return append(jsontext.AppendString(append(dst, `,"encrypted_content":`...), o.Sealed), '}')
	case Carrier:
		return o.appendCarrier(dst, status)
	case ToolSearch, ToolsFound:
		return o.appendToolSearch(dst, status)
	case Shell, LocalShell, ApplyPatch:
		return o.appendAction(dst, status)
	}

	// Clients tell by the phase what the model says before its calls from its answer.
	phase := "final_answer"
	if o.Kind == Commentary {
		phase = "commentary"
	}

	dst = o.appendHead(dst, "message", status)
	dst = append(append(append(dst, `,"role":"assistant","phase":"`...), phase...), `","content":[`...)
	if !begun {
		dst = o.AppendPart(dst, "output_text", text)
	}

	return append(dst, `]}`...)
}

func (o *Output) appendReasoning(dst []byte, status string, text []byte, begun bool) []byte {
	dst = o.appendHead(dst, "reasoning", status)
	dst = append(dst, `,"summary":[`...)
	if o.Summary && !begun {
		dst = o.AppendPart(dst, "summary_text", text)
	}

	dst = append(dst, ']')
	// Some clients show the content of any item as the answer: with a summary there is none.
	if !o.Summary {
		dst = append(dst, `,"content":[`...)
		if !begun {
			dst = o.AppendPart(dst, "reasoning_text", text)
		}
		dst = append(dst, ']')
	}

	// The seal is of the whole text.
	if o.Sealed != "" && !begun {
		dst = jsontext.AppendString(append(dst, `,"encrypted_content":`...), o.Sealed)
	}

	return append(dst, '}')
}

func (o *Output) appendCall(dst []byte, status string, text []byte) []byte {
	kind, member := "function_call", `,"arguments":"`
	if o.Kind == Custom {
		kind, member = "custom_tool_call", `,"input":"`
	}

	dst = o.appendHead(dst, kind, status)
	dst = jsontext.AppendString(append(dst, `,"call_id":`...), o.Call.ID)
	dst = jsontext.AppendString(append(dst, `,"name":`...), o.Call.Name)
	// Clients know plain functions without a namespace, unless they have sent one of this name.
	if ns := o.Call.Namespace; ns != "" && (ns != turn.FunctionsNamespace || o.Named) {
		dst = jsontext.AppendString(append(dst, `,"namespace":`...), ns)
	}

	return append(append(append(dst, member...), text...), `"}`...)
}

func (o *Output) appendHead(dst []byte, kind, status string) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","id":`...)
	dst = jsontext.AppendString(dst, o.ID)
	return append(append(append(dst, `,"status":"`...), status...), '"')
}

// AppendPart appends the part of the item's content or summary, of a type such as
// output_text. Its text is escaped already.
func (o *Output) AppendPart(dst []byte, kind string, text []byte) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","text":"`...)
	dst = append(append(dst, text...), '"')
	// SDKs' types require both members, also where they are empty.
	if kind == "output_text" {
		dst = append(dst, `,"annotations":[`...)
		for i, a := range o.Annotations {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, a...)
		}
		dst = turn.AppendLogprobsArray(append(dst, `],"logprobs":`...), o.Logprobs)
	}

	return append(dst, '}')
}
