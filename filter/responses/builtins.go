package responses

import (
	"cmp"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// builtin is how a built-in tool looks to the model and to the client.
type builtin struct {
	namespace string
	known     func() harmony.Namespace // the tools that the model was trained with; nil: the server's own tools
	system    bool                     // it is in the system message
	item      item.Kind
}

var builtins = map[tools.Builtin]*builtin{
	tools.WebSearch:       {"browser", harmony.BrowserNamespace, true, item.WebSearch},
	tools.CodeInterpreter: {"python", harmony.PythonNamespace, true, item.Code},
	tools.Container:       {"container", nil, true, item.MCPCall},
	tools.FileSearch:      {"file_search", nil, false, item.FileSearch},
	tools.ImageGeneration: {"image_generation", nil, false, item.Image},
}

// codeArgument is the one argument of [tools.CodeTool].
const codeArgument = "code"

// builtinOf is the built-in tool of a tool's type. Some types have the date of
// their version, such as web_search_preview_2025_03_11.
func builtinOf(kind string) tools.Builtin {
	if strings.HasPrefix(kind, string(tools.WebSearch)) {
		return tools.WebSearch
	}
	return tools.Builtin(kind)
}

// readBuiltin reads a built-in tool. One without a server is not offered to the
// model: most clients that send it can do without.
func (r *toolReader) readBuiltin(kind string, v jsontext.Field) *apierror.Error {
	name := builtinOf(kind)
	b := builtins[name]
	label, configured := r.api.Builtins[name]
	if b == nil || !configured || r.api.Tools == nil {
		r.ignored.Add("tools." + item.Clip(kind))
		return nil
	}
	server, ok := r.api.Tools.Server(label)
	if !ok {
		return nil // the configuration has been checked
	}
	for _, h := range r.hosted {
		if h.builtin == b {
			return apierror.Invalid(v.Path, "The tool %q is twice among the tools.", item.Clip(kind))
		}
	}
	server.Tenant = r.rc.Tenant
	h := &hosted{label: b.namespace, server: server, builtin: b, known: b.known != nil}
	r.hosted = append(r.hosted, h)
	if err := r.readBuiltinFields(name, h, v); err != nil || !h.known {
		return err
	}
	return r.settleFields(h)
}

// offers reports whether a call of a built-in tool is one that the model has been
// offered. An item of the conversation can bring other tools in the same namespace,
// which the server may have and the operator or the request leaves out.
func (h *hosted) offers(seen string) bool {
	return h.builtin.known != nil || h.tool(h.fromModel(seen)) != nil
}

// offerBuiltin offers a built-in tool to the model.
func (r *toolReader) offerBuiltin(h *hosted) {
	var space harmony.Namespace
	if h.builtin.known != nil {
		space = h.builtin.known()
	} else if space = h.namespace(); len(space.Tools) == 0 {
		return
	}
	if h.builtin.system {
		r.input.Builtins = append(r.input.Builtins, space)
	} else {
		r.input.Tools = append(r.input.Tools, space)
	}
}

// containerPrefix begins the ids of containers.
const containerPrefix = "cntr_"

// containerID is the session in which the built-in tools of the conversation run:
// the one that the request names, else the conversation's, else a new one.
func (r *toolReader) containerID(conversations string) string {
	for _, h := range r.hosted {
		if h.builtin != nil {
			return cmp.Or(r.container, conversations, r.rc.NewID(containerPrefix))
		}
	}
	return ""
}
