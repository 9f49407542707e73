package toolset

import (
	"cmp"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

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
func (r *Reader) readBuiltin(kind string, v jsontext.Field) *apierror.Error {
	name := builtinOf(kind)
	found := hosted.FindBuiltin(r.config.Client, r.config.Builtins, name, r.rc.Tenant)
	if found == nil {
		r.ignored.Add("tools." + item.Clip(kind))
		return nil
	}

	// Two versions of a type, such as web_search and web_search_preview, are one tool to the model.
	for _, h := range r.Hosted {
		if h.builtin() == name {
			return apierror.Invalid(v.Path, "The tool %q is twice among the tools.", item.Clip(kind))
		}
	}

	h := &Server{Server: *found}
	r.Hosted = append(r.Hosted, h)
	// The fields can be settled once the server's tools are listed; those of trained tools are known.
	if err := r.readBuiltinFields(name, h, v); err != nil || !h.Known {
		return err
	}

	return r.settleFields(h)
}

// Offers reports whether a call of a built-in tool is one that the model has been
// offered. An item of the conversation can bring other tools in the same namespace,
// which the server may have and the operator or the request leaves out.
func (h *Server) Offers(seen string) bool {
	return h.Builtin.Trained != nil || h.Tool(h.FromModel(seen)) != nil
}

// offerBuiltin offers a built-in tool to the model.
func (r *Reader) offerBuiltin(h *Server) {
	space := h.Offered()
	if len(space.Tools) == 0 && h.Builtin.Trained == nil {
		return
	}
	if h.Builtin.System {
		r.input.Builtins = append(r.input.Builtins, space)
	} else {
		r.input.Tools = append(r.input.Tools, space)
	}
}

// containerPrefix begins the ids of containers.
const containerPrefix = "cntr_"

// containerID is the session in which the built-in tools of the conversation run:
// the one that the request names, else the conversation's, else a new one.
func (r *Reader) containerID(conversations string) string {
	for _, h := range r.Hosted {
		if h.Builtin != nil {
			return cmp.Or(r.container, conversations, r.rc.NewID(containerPrefix))
		}
	}
	return ""
}
