package toolset

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Servers returns the servers and built-in tools that have been read.
func (r *Reader) Servers() []*hosted.Server { return r.offer.Servers }

// Unlisted returns the servers that have to list their tools before they are offered. listed is
// what the conversation has of their lists, by label.
func (r *Reader) Unlisted(listed map[string][]tools.Tool) []*hosted.Server {
	return r.offer.Unlisted(r.input, listed)
}

// ServerOf finds the MCP server of an approved call among the request's tools.
func (r *Reader) ServerOf(label string) (*hosted.Server, *apierror.Error) {
	if s := r.offer.Server(label, ""); s != nil {
		return s, nil
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

// Offer offers the servers' tools to the model, as far as they are known.
func (r *Reader) Offer() *apierror.Error {
	served, err := r.offer.Tools()
	if err != nil {
		return err
	}
	r.ignore(served.Ignored)
	r.input.Tools = append(r.input.Tools, served.Tools...)
	r.input.Builtins = append(r.input.Builtins, served.Builtins...)
	r.input.Deferred = hosted.Spaces(r.offer.Deferred)

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

	return r.offer.CheckRequired(r.input)
}

func (r *Reader) allowHosted(c hostedChoice) *apierror.Error {
	s := r.offer.Server(c.label, c.builtin)
	if s == nil {
		return apierror.Invalid(c.at, "The server %q of tool_choice is not one of the tools of the request.",
			item.Clip(c.label))
	}

	// A choice that allows no tool would leave the model nothing to call.
	callable := s.Callable(c.name)
	if len(callable) == 0 {
		return s.Unavailable(c.at)
	}
	r.input.Choice.Allowed = append(r.input.Choice.Allowed, callable...)
	return nil
}
