package hosted

import (
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Builtin is the row of a built-in tool: all that the model and the clients of both APIs have to
// know of it. Its name is a key of the configuration too; tests of packages config, item and docs ask for
// what a new row needs beside it.
type Builtin struct {
	Name      tools.Builtin
	Namespace string
	// The tools that the model was trained with; nil: it gets the server's own.
	Trained func() harmony.Namespace
	// It is in the system message.
	System bool
	// Item is the type of the items of Responses that its calls become.
	Item string
	// Block is the name under which clients of Messages know it, with which its types begin; "": they
	// do not know it.
	Block string
}

// Builtins are the rows of all built-in tools. They must not be changed.
var Builtins = []*Builtin{
	{
		Name:      tools.WebSearch,
		Namespace: "browser",
		Trained:   harmony.BrowserNamespace,
		System:    true,
		Item:      "web_search_call",
		Block:     "web_search",
	},
	{
		Name:      tools.CodeInterpreter,
		Namespace: "python",
		Trained:   harmony.PythonNamespace,
		System:    true,
		Item:      "code_interpreter_call",
		Block:     "code_execution",
	},
	{Name: tools.Container, Namespace: "container", System: true, Item: "mcp_call"},
	{Name: tools.FileSearch, Namespace: "file_search", Item: "file_search_call"},
	{Name: tools.ImageGeneration, Namespace: "image_generation", Item: "image_generation_call"},
}

func builtin(name tools.Builtin) *Builtin {
	for _, b := range Builtins {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// NamespaceOf returns the namespace in which the model sees a built-in tool; "" if
// there is none of the name.
func NamespaceOf(name tools.Builtin) string {
	if b := builtin(name); b != nil {
		return b.Namespace
	}
	return ""
}
