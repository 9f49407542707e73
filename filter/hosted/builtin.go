package hosted

import (
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Builtin is how a built-in tool looks to the model.
type Builtin struct {
	Name      tools.Builtin
	Namespace string
	// The tools that the model was trained with; nil: it gets the server's own.
	Trained func() harmony.Namespace
	// It is in the system message.
	System bool
}

var builtins = map[tools.Builtin]*Builtin{
	tools.WebSearch:       {tools.WebSearch, "browser", harmony.BrowserNamespace, true},
	tools.CodeInterpreter: {tools.CodeInterpreter, "python", harmony.PythonNamespace, true},
	tools.Container:       {tools.Container, "container", nil, true},
	tools.FileSearch:      {tools.FileSearch, "file_search", nil, false},
	tools.ImageGeneration: {tools.ImageGeneration, "image_generation", nil, false},
}

// FindBuiltin returns a built-in tool for a request of a tenant; nil if no server is
// configured for it. labels are those of the configured servers, and client may be nil.
func FindBuiltin(client *tools.Client, labels map[tools.Builtin]string, name tools.Builtin, tenant string) *Server {
	b := builtins[name]
	label, configured := labels[name]
	if b == nil || !configured || client == nil {
		return nil
	}
	server, ok := client.Server(label)
	if !ok {
		return nil // the configuration has been checked
	}
	server.Tenant = tenant
	return &Server{Label: b.Namespace, MCP: server, Builtin: b, Known: b.Trained != nil}
}

// NamespaceOf returns the namespace in which the model sees a built-in tool; "" if
// there is none of the name.
func NamespaceOf(name tools.Builtin) string {
	if b := builtins[name]; b != nil {
		return b.Namespace
	}
	return ""
}
