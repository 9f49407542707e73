package toolset

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// clientTool is a tool that the client runs, and whose calls are items with an action
// in place of arguments. The model sees it as a function with the name of its type.
type clientTool struct {
	kind        item.Kind
	description string
	parameters  string
}

// clientTools are these tools, by their types.
var clientTools = map[string]*clientTool{
	"shell": {
		kind:        item.Shell,
		description: "Runs shell commands, one after the other, and returns what they print and their exit codes.",
		parameters: `{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}},` +
			`"timeout_ms":{"type":"integer"},"max_output_length":{"type":"integer"}},"required":["commands"]}`,
	},
	"local_shell": {
		kind:        item.LocalShell,
		description: "Runs one command, given as its words, and returns what it prints.",
		parameters: `{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}},` +
			`"working_directory":{"type":"string"},"timeout_ms":{"type":"integer"},"user":{"type":"string"},` +
			`"env":{"type":"object","additionalProperties":{"type":"string"}}},"required":["command"]}`,
	},
	"apply_patch": {
		kind: item.ApplyPatch,
		description: "Creates, updates or deletes one file. The diff of create_file has + before each line. " +
			"The diff of update_file has hunks: @@, then lines that begin with a space (unchanged), - (removed) " +
			"or + (added).",
		parameters: `{"type":"object","properties":` +
			`{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},` +
			`"path":{"type":"string"},"diff":{"type":"string"}},"required":["type","path"]}`,
	},
}

// readClientTool reads a tool with a call of its own type. One that the client does
// not run is not offered: a shell in a container of the service, or a tool that only
// programs may call.
func (r *Reader) readClientTool(kind string, v jsontext.Field, space *harmony.Namespace) *apierror.Error {
	t := clientTools[kind]
	// The items of its calls have no member for a namespace.
	if space.Name != turn.FunctionsNamespace || !runByClient(v) {
		r.ignored.Add("tools." + kind)
		return nil
	}

	// The model learns of the skills from the description alone.
	description := t.description
	if skills := v.Get("environment.skills"); skills.IsArray() {
		description += describeSkills(skills)
	}

	r.actions[turn.ToolName{Namespace: turn.FunctionsNamespace, Name: kind}] = t.kind
	space.Tools = append(space.Tools, harmony.Tool{
		Name:        kind,
		Description: description,
		Parameters:  json.RawMessage(t.parameters),
	})
	return nil
}

// runByClient reports whether the client runs the tool for the model.
func runByClient(v jsontext.Field) bool {
	environment := v.Get("environment")
	if environment.Exists() && environment.Type != gjson.Null && environment.Get("type").Str != "local" {
		return false
	}
	return calledDirectly(v)
}

// calledDirectly reports whether the model itself may call a tool. Programs may not: there
// are none.
func calledDirectly(v jsontext.Field) bool {
	callers := v.Get("allowed_callers")
	if !callers.IsArray() {
		return true
	}
	for c := range jsontext.List(callers) {
		if c.Str == "direct" {
			return true
		}
	}
	return false
}

// describeSkills tells the model of the skills that the client's shell has.
func describeSkills(skills gjson.Result) string {
	var text strings.Builder
	skills.ForEach(func(_, s gjson.Result) bool {
		if text.Len() == 0 {
			text.WriteString("\n\nSkills, each a directory with instructions in SKILL.md. Read them before a task " +
				"that they are for:")
		}
		text.WriteString("\n- " + s.Get("name").Str + " (" + s.Get("path").Str + "): " + s.Get("description").Str)
		return true
	})
	return text.String()
}

// clientToolName is the function of a tool with a call of its own type, for
// tool_choice; false for other types.
func clientToolName(v jsontext.Field) (turn.ToolName, bool) {
	kind := v.Get("type").Str
	if clientTools[kind] == nil {
		return turn.ToolName{}, false
	}
	return turn.ToolName{Namespace: turn.FunctionsNamespace, Name: strings.Clone(kind)}, true
}

// appendClientChoice appends the tool of tool_choice as the response has it. Clients'
// types do not know local_shell there, so that it is the function of that name.
func appendClientChoice(dst []byte, name turn.ToolName) []byte {
	if name.Name == "local_shell" {
		return appendToolName(dst, "function", name)
	}
	return appendToolType(dst, name.Name)
}

// appendToolType appends a tool that is chosen by its type alone.
func appendToolType(dst []byte, kind string) []byte {
	return append(jsontext.AppendString(append(dst, `{"type":`...), kind), '}')
}
