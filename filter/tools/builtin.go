package tools

import "github.com/envoy-harmony/envoy-harmony/harmony"

// Builtin is the name of one of OpenAI's built-in tools, as the configuration
// writes it. An MCP server does the work of each: see docs/tools.md.
type Builtin string

// The built-in tools.
const (
	WebSearch       Builtin = "web_search"
	CodeInterpreter Builtin = "code_interpreter"
	Container       Builtin = "container"
	FileSearch      Builtin = "file_search"
	ImageGeneration Builtin = "image_generation"
)

// CodeTool is the tool that the server of [CodeInterpreter] must have.
const CodeTool = "python"

// Tools returns the names of the tools that the built-in tool's server must
// have, because the model was trained with them; nil: the server may have any.
func (b Builtin) Tools() []string {
	switch b {
	case CodeInterpreter:
		return []string{CodeTool}
	case WebSearch:
		var names []string
		for _, t := range harmony.BrowserNamespace().Tools {
			names = append(names, t.Name)
		}
		return names
	}
	return nil
}
