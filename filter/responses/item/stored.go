package item

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The item of a built-in tool's call does not have the tool's output. Where the
// prompt of a later request needs it, the stored item has a first member with
// it, which clients neither get nor can send.
const modelView = "model_view"

// ReadStored reads a stored item. Its content is trusted without its seal, and
// outlives the seal's keys.
func ReadStored(i store.Item, path string) (Item, *apierror.Error) {
	it, err := Read(jsontext.Field{Result: gjson.ParseBytes(i.JSON), Path: path})
	if it.Content.Exists() {
		it.Encrypted = ""
	}
	it.ModelView = it.At.Get(modelView)
	return it, err
}

// AppendStored appends the item as it is stored and listed: with its type, an id
// and a status, without nulls and the secrets of tools, and with a list of parts as a
// message's content.
func (it *Item) AppendStored(dst []byte, id string) []byte {
	// One allocation: texts can be megabytes, and growing would copy them several times.
	dst = slices.Grow(dst, max(len(it.At.Raw), len(it.Content.Raw))+len(id)+storedMembers)
	// It is the first member, so that it can be cut off without parsing the item.
	if it.ModelView.Exists() {
		dst = append(append(append(dst, `{"`+modelView+`":`...), it.ModelView.Raw...), ',')
	} else {
		dst = append(dst, '{')
	}

	dst = jsontext.AppendString(append(dst, `"type":`...), it.Kind)
	dst = jsontext.AppendString(append(dst, `,"id":`...), id)
	// Clients require a status of every item, and leave it out of their own.
	if it.At.Get("status").Type != gjson.String {
		dst = append(dst, `,"status":"completed"`...)
	}

	it.At.ForEach(func(k, v gjson.Result) bool {
		// The first three are written already.
		if k.Str == "type" || k.Str == "id" || k.Str == modelView || v.Type == gjson.Null {
			return true
		}

		dst = append(jsontext.AppendString(append(dst, ','), k.Str), ':')
		switch {
		// Lists of items have parts only, and clients may send a text.
		case k.Str == "content" && it.Kind == "message" && v.Type == gjson.String:
			dst = it.appendTextPart(dst, it.Content.Str)
		case k.Str == "tools" && (it.Kind == "additional_tools" || it.Kind == "tool_search_output") && v.IsArray():
			dst = appendStoredTools(dst, v)
		default:
			dst = jsontext.AppendCompact(dst, v.Raw)
		}

		return true
	})

	return append(dst, '}')
}

// storedMembers is about how many bytes the members have that every stored item has.
const storedMembers = 128

// appendTextPart appends the content of a message that is one text.
func (it *Item) appendTextPart(dst []byte, text string) []byte {
	if it.Role == "assistant" {
		dst = jsontext.AppendString(append(dst, `[{"type":"output_text","text":`...), text)
		return append(dst, `,"annotations":[],"logprobs":[]}]`...)
	}
	return append(jsontext.AppendString(append(dst, `[{"type":"input_text","text":`...), text), `}]`...)
}

// WithModelView returns the JSON of an item of a built-in tool's call with what
// the model sees in its place: the call and its result, and the container that
// they belong to.
func WithModelView(json []byte, call, result *turn.Item, container string) []byte {
	dst := AppendModelView([]byte(`{"`+modelView+`":`), call, result, container)
	return append(append(dst, ','), json[1:]...)
}

// AppendModelView appends what the model sees in the place of such an item.
func AppendModelView(dst []byte, call, result *turn.Item, container string) []byte {
	dst = jsontext.AppendString(append(dst, `{"namespace":`...), call.Namespace)
	dst = jsontext.AppendString(append(dst, `,"name":`...), call.Name)
	dst = jsontext.AppendString(append(dst, `,"input":`...), call.Text)
	dst = jsontext.AppendString(append(dst, `,"output":`...), result.Text)
	dst = jsontext.AppendString(append(dst, `,"container":`...), container)
	if call.Builtin {
		dst = append(dst, `,"builtin":true`...)
	}
	return append(dst, '}')
}

// Shown is a stored item as clients get it.
func Shown(i store.Item) []byte {
	begin := []byte(`{"` + modelView + `":`)
	if !bytes.HasPrefix(i.JSON, begin) {
		return i.JSON
	}
	end := len(begin) + len(gjson.GetBytes(i.JSON, modelView).Raw)
	return append([]byte{'{'}, i.JSON[end+1:]...)
}

// IsCutCall reports whether an item is a call that the engine has not completed.
// An MCP call with complete arguments may have been made.
func IsCutCall(i store.Item) bool {
	v := gjson.ParseBytes(i.JSON)
	if v.Get("status").Str != StatusIncomplete {
		return false
	}
	return v.Get("call_id").Exists() || v.Get("type").Str == "mcp_call" && !jsontext.Valid(v.Get("arguments").Str)
}

// WithoutCutCalls returns the items but calls that the engine has not completed.
// Such a call has no output, and its client cannot take it back.
func WithoutCutCalls(items []store.Item) []store.Item {
	return slices.DeleteFunc(slices.Clone(items), IsCutCall)
}

// IsCompaction reports whether an item replaces the conversation before it.
func IsCompaction(i store.Item) bool {
	return isCompaction(func(name string) gjson.Result { return gjson.GetBytes(i.JSON, name) })
}

// CompactionIn is [IsCompaction] for an element of an input.
func CompactionIn(v gjson.Result) bool { return isCompaction(v.Get) }

func isCompaction(member func(name string) gjson.Result) bool {
	switch member("type").Str {
	case "compaction", "compaction_summary":
		return true
	case "context_compaction":
		// It is a client's own. Without a summary it only says that there was one.
		return member("encrypted_content").Str != ""
	}

	return false
}

// IDPrefix is what the id of an input item begins with.
func IDPrefix(kind string) string {
	switch kind {
	case "message":
		return "msg_"
	case "reasoning":
		return "rs_"
	case "function_call":
		return "fc_"
	case "function_call_output":
		return "fco_"
	case "custom_tool_call":
		return "ctc_"
	case "custom_tool_call_output":
		return "ctco_"
	case "compaction", "compaction_summary":
		return "cmp_"
	case "additional_tools":
		return "at_"
	case "tool_search_call":
		return "tsc_"
	case "tool_search_output":
		return "tso_"
	}

	return cmp.Or(otherPrefixes[kind], "item_")
}

// otherPrefixes begin the ids of items of tools that the client runs in other ways
// than functions.
var otherPrefixes = map[string]string{
	"shell_call": "sh_", "shell_call_output": "sho_", "local_shell_call": "lsh_", "local_shell_call_output": "lsho_",
	"apply_patch_call": "apc_", "apply_patch_call_output": "apco_",
	"computer_call": "cu_", "computer_call_output": "cuo_",
	"agent_message": "amsg_",
}

// Role is what an item is to a tool of the client's.
type Role uint8

// The roles. Other items have none.
const (
	NoRole Role = iota
	ToolCall
	ToolOutput
)

// RoleOf is the role of a type of item.
func RoleOf(kind string) Role {
	switch kind {
	case "function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call", "computer_call":
		return ToolCall
	case "function_call_output", "custom_tool_call_output", "shell_call_output", "local_shell_call_output",
		"apply_patch_call_output", "computer_call_output":
		return ToolOutput
	}
	return NoRole
}
