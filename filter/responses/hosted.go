package responses

import (
	"net/http"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// hosted is an MCP server of the request, whose tools are called here. The model
// sees them as a namespace with the server's label, or with a built-in tool's name.
type hosted struct {
	label       string
	builtin     *builtin // nil: a tool of the type mcp
	description string
	server      *tools.Server
	allowed     *toolFilter // nil: every tool
	approval    approval
	fields      []builtinField // of a built-in tool
	deferred    bool           // the tools are not offered before a search finds them

	known    bool              // the tools are listed
	failure  string            // why they could not be listed; "" if nothing failed
	listed   []tools.Tool      // those that the operator allows
	tools    []tools.Tool      // of these, those that the request allows
	numbered map[string]string // the names of listed tools that have a number for the model, with the number
}

// toolFilter selects tools of a server: by name, by whether they only read, or by
// both.
type toolFilter struct {
	names    map[string]bool // nil: all
	readOnly *bool
}

func (f *toolFilter) fits(t *tools.Tool) bool {
	if f.names != nil && !f.names[t.Name] {
		return false
	}
	return f.readOnly == nil || *f.readOnly == gjson.GetBytes(t.Annotations, "readOnlyHint").Bool()
}

// approval says which calls the client has to approve.
type approval struct {
	all           bool        // but for those that never need it
	always, never *toolFilter // nil: none
}

func (a *approval) needed(t *tools.Tool) bool {
	switch {
	case a.never != nil && a.never.fits(t):
		return false
	case a.always != nil && a.always.fits(t):
		return true
	}
	return a.all
}

// hostedSpace is a namespace of tools that are called here.
type hostedSpace struct {
	name    string
	builtin bool // in the system message
}

func (r *toolReader) hostedSpaces() map[hostedSpace]*hosted {
	if len(r.hosted) == 0 {
		return nil
	}
	spaces := make(map[hostedSpace]*hosted, len(r.hosted))
	for _, h := range r.hosted {
		spaces[hostedSpace{h.label, h.builtin != nil && h.builtin.system}] = h
	}
	return spaces
}

// needsApproval reports whether the client has to approve a call.
func (h *hosted) needsApproval(name string) bool {
	if h.builtin != nil {
		return false
	}
	t := h.tool(name)
	return t == nil || h.approval.needed(t)
}

// tool is the tool of a name, nil if the request has none.
func (h *hosted) tool(name string) *tools.Tool {
	for i := range h.tools {
		if h.tools[i].Name == name {
			return &h.tools[i]
		}
	}
	return nil
}

// names are what the model can call. "" is the namespace itself.
func (h *hosted) names() []string {
	space := h.namespace()
	if h.builtin != nil && h.builtin.known != nil {
		if space = h.builtin.known(); len(space.Tools) == 0 {
			return []string{""}
		}
	}
	names := make([]string, len(space.Tools))
	for i, t := range space.Tools {
		names[i] = t.Name
	}
	return names
}

// namespace is the server's tools as the model sees them.
func (h *hosted) namespace() harmony.Namespace {
	space := harmony.Namespace{Name: h.label, Description: h.description, Tools: make([]harmony.Tool, len(h.tools))}
	for i, t := range h.tools {
		space.Tools[i] = harmony.Tool{Name: h.toModel(t.Name), Description: t.Description, Parameters: t.InputSchema}
	}
	return space
}

// hostedChoice is what tool_choice says of a server's tools: one of them, or all.
type hostedChoice struct {
	at          string   // where it is in the request
	builtin     *builtin // nil: the tools of an MCP server
	label, name string
}

// addHostedTools offers the servers' tools to the model, as far as they are known.
func (r *toolReader) addHostedTools() *apierror.Error {
	for _, h := range r.hosted {
		if err := r.settleFields(h); err != nil {
			return err
		}
		switch {
		case h.builtin != nil:
			r.offerBuiltin(h)
		case h.deferred:
			r.deferHosted(h)
		case len(h.tools) > 0:
			r.input.Tools = append(r.input.Tools, h.namespace())
		}
	}
	r.input.Deferred = namespacesOf(r.deferred)
	for _, c := range r.choices {
		if err := r.allowHosted(c); err != nil {
			return err
		}
	}
	r.choices = nil
	return r.checkRequired()
}

func (r *toolReader) allowHosted(c hostedChoice) *apierror.Error {
	i := slices.IndexFunc(r.hosted, func(h *hosted) bool { return h.builtin == c.builtin && h.label == c.label })
	if i < 0 {
		return apierror.Invalid(c.at, "The server %q of tool_choice is not one of the tools of the request.", item.Clip(c.label))
	}
	before := len(r.input.Choice.Allowed)
	for _, name := range r.hosted[i].names() {
		if c.name == "" || r.hosted[i].toModel(c.name) == name {
			r.input.Choice.Allowed = append(r.input.Choice.Allowed, turn.ToolName{Namespace: c.label, Name: name, Builtin: c.builtin != nil && c.builtin.system})
		}
	}
	if len(r.input.Choice.Allowed) == before {
		if h := r.hosted[i]; h.failure != "" {
			return h.unavailable(c.at)
		}
		return apierror.New(http.StatusFailedDependency, codeUnavailable, c.at, "tool_choice asks for a tool of the server %q that it does not have, or that the request does not allow.", item.Clip(c.label))
	}
	return nil
}

// codeUnavailable is the code of an error that says that a tool that has to be
// called is missing.
const codeUnavailable = "tool_unavailable"

// unavailable is the answer where tool_choice demands a call of a server whose
// tools could not be listed.
func (h *hosted) unavailable(at string) *apierror.Error {
	return apierror.New(http.StatusFailedDependency, codeUnavailable, at, "tool_choice asks for a call, but the tools of the server %q could not be listed: %s", item.Clip(h.label), h.failure)
}

// checkRequired refuses a request that demands a call where there is no tool
// because a server's tools could not be listed.
func (r *toolReader) checkRequired() *apierror.Error {
	if !r.input.Choice.Required || len(r.input.Builtins) > 0 {
		return nil
	}
	for _, space := range r.input.Tools {
		if len(space.Tools) > 0 {
			return nil
		}
	}
	for _, h := range r.hosted {
		if h.failure != "" {
			return h.unavailable("tool_choice")
		}
	}
	return nil
}
