package toolset

import (
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Server is a server of the request, whose tools are called here.
type Server struct {
	hosted.Server
	approval approval
	fields   []builtinField // of a built-in tool
	deferred bool           // the tools are not offered before a search finds them
}

// approval says which calls the client has to approve.
type approval struct {
	all           bool           // except those that never need it
	always, never *hosted.Filter // nil: none
}

func (a *approval) needed(t *tools.Tool) bool {
	switch {
	case a.never != nil && a.never.Fits(t):
		return false
	case a.always != nil && a.always.Fits(t):
		return true
	}
	return a.all
}

func (r *Reader) hostedSpaces() map[hosted.Space]*Server {
	if len(r.Hosted) == 0 {
		return nil
	}
	spaces := make(map[hosted.Space]*Server, len(r.Hosted))
	for _, h := range r.Hosted {
		spaces[h.Space()] = h
	}
	return spaces
}

// builtin returns the built-in tool that the server implements; "" for an MCP server.
func (h *Server) builtin() tools.Builtin {
	if h.Builtin == nil {
		return ""
	}
	return h.Builtin.Name
}

// NeedsApproval reports whether the client has to approve a call.
func (h *Server) NeedsApproval(name string) bool {
	if h.Builtin != nil {
		return false
	}
	t := h.Tool(name)
	return t == nil || h.approval.needed(t)
}

// ServerOf finds the MCP server of an approved call among the request's tools.
func (r *Reader) ServerOf(label string) (*Server, *apierror.Error) {
	for _, h := range r.Hosted {
		if h.Builtin == nil && h.Label == label {
			return h, nil
		}
	}
	return nil, apierror.Invalid("tools",
		"The call that is approved is one of the MCP server %q, which is not among the tools of the request. Send "+
			"the tool again.", item.Clip(label))
}

// hostedChoice is what tool_choice says of a server's tools: one of them, or all.
type hostedChoice struct {
	at          string        // where it is in the request
	builtin     tools.Builtin // "": the tools of an MCP server
	label, name string
}

// OfferHosted offers the servers' tools to the model, as far as they are known.
func (r *Reader) OfferHosted() *apierror.Error {
	for _, h := range r.Hosted {
		// What limits a tool decides which tools there are, and so comes before they are offered.
		if err := r.settleFields(h); err != nil {
			return err
		}

		switch {
		case h.Builtin != nil:
			r.offerBuiltin(h)
		case h.deferred:
			r.deferHosted(h)
		case len(h.Tools) > 0:
			r.input.Tools = append(r.input.Tools, h.Offered())
		}
	}

	r.input.Deferred = namespacesOf(r.Deferred)
	// tool_choice can name a server thousands of times.
	done := map[hostedChoice]bool{}
	for _, c := range r.choices {
		same := c
		// Each choice can allow all tools of a server: the same one again adds nothing but work.
		if same.at = ""; done[same] {
			continue
		}
		done[same] = true
		if err := r.allowHosted(c); err != nil {
			return err
		}
	}

	r.choices = nil

	return r.checkRequired()
}

func (r *Reader) allowHosted(c hostedChoice) *apierror.Error {
	i := slices.IndexFunc(r.Hosted, func(h *Server) bool { return h.builtin() == c.builtin && h.Label == c.label })
	if i < 0 {
		return apierror.Invalid(c.at, "The server %q of tool_choice is not one of the tools of the request.",
			item.Clip(c.label))
	}

	before := len(r.input.Choice.Allowed)
	for _, name := range r.Hosted[i].Names() {
		if c.name == "" || r.Hosted[i].ToModel(c.name) == name {
			r.input.Choice.Allowed = append(r.input.Choice.Allowed, turn.ToolName{
				Namespace: c.label,
				Name:      name,
				Builtin:   r.Hosted[i].Space().System,
			})
		}
	}

	// A choice that allows no tool would leave the model nothing to call.
	if len(r.input.Choice.Allowed) == before {
		if h := r.Hosted[i]; h.Failure != "" {
			return h.unavailable(c.at)
		}
		return apierror.New(http.StatusFailedDependency, codeUnavailable, c.at,
			"tool_choice asks for a tool of the server %q that it does not have, or that the request does not allow.",
			item.Clip(c.label))
	}

	return nil
}

// codeUnavailable is the code of an error that says that a tool that has to be
// called is missing.
const codeUnavailable = "tool_unavailable"

// unavailable is the answer where tool_choice demands a call of a server whose
// tools could not be listed.
func (h *Server) unavailable(at string) *apierror.Error {
	return apierror.New(http.StatusFailedDependency, codeUnavailable, at,
		"tool_choice asks for a call, but the tools of the server %q could not be listed: %s",
		item.Clip(h.Label), h.Failure)
}

// checkRequired refuses a request that demands a call where there is no tool
// because a server's tools could not be listed.
func (r *Reader) checkRequired() *apierror.Error {
	if !r.input.Choice.Required || len(r.input.Builtins) > 0 {
		return nil
	}

	for _, space := range r.input.Tools {
		if len(space.Tools) > 0 {
			return nil
		}
	}

	for _, h := range r.Hosted {
		if h.Failure != "" {
			return h.unavailable("tool_choice")
		}
	}

	return nil
}
