package toolset

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// noHosted is why tools of the type mcp cannot be used.
const noHosted = "MCP servers are not called here: that needs Envoy's loopback listener (the operator sets " +
	"loopback). Leave the tool out, or offer the server's tools as functions."

// readServer reads a tool of the type mcp.
func (r *Reader) readServer(at jsontext.Field) *apierror.Error {
	if r.config.Client == nil {
		return apierror.Invalid(at.Path+".type", noHosted)
	}

	var read mcpServer
	err := at.Fields(func(key string, v jsontext.Field) *apierror.Error { return r.readServerField(&read, key, v) })
	if err != nil {
		return err
	}

	h, err := r.newHosted(at, &read)
	if err != nil {
		return err
	}

	r.Hosted = append(r.Hosted, h)

	return nil
}

// mcpServer is a tool of the type mcp as the request defines it.
type mcpServer struct {
	label, url, description, authorization string
	header                                 http.Header
	allowed                                *hosted.Filter
	approval                               *approval
	deferred                               bool
}

func (r *Reader) readServerField(s *mcpServer, key string, v jsontext.Field) (err *apierror.Error) {
	switch key {
	case "type":
	case "server_label":
		s.label, err = v.ShortText()
	case "server_url":
		s.url, err = v.Text()
	case "server_description":
		s.description, err = v.Text()
	case "authorization":
		s.authorization, err = v.Text()
	case "headers":
		s.header = http.Header{}
		fields := 0
		err = v.Entries(func(name string, v jsontext.Field) *apierror.Error {
			fields++
			if fields > hosted.MaxHeaders {
				return apierror.Invalid(v.Path, "An MCP server has more than %d headers. Leave some out.",
					hosted.MaxHeaders)
			}
			value, err := v.Text()
			s.header.Set(strings.Clone(name), strings.Clone(value))
			return err
		})
	case "allowed_tools":
		s.allowed, err = readToolFilter(v)
	case "require_approval":
		s.approval, err = readApproval(v)
	case "defer_loading":
		s.deferred, err = v.Switch()
	default:
		err = ServerFields.Other(key, v, r.ignored)
	}

	return err
}

// readToolFilter reads a list of names, or {"tool_names":…,"read_only":…}.
func readToolFilter(v jsontext.Field) (*hosted.Filter, *apierror.Error) {
	f := &hosted.Filter{}
	if v.IsArray() {
		err := readNames(f, v)
		return f, err
	}
	return f, v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "tool_names":
			return readNames(f, v)
		case "read_only":
			f.ReadOnly = new(bool)
			return v.SetSwitch(f.ReadOnly)
		}
		return apierror.Invalid(v.Path, "A filter of tools has only tool_names and read_only.")
	})
}

// readNames reads the names of a filter.
func readNames(f *hosted.Filter, v jsontext.Field) *apierror.Error {
	f.Names = map[string]bool{}
	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i == hosted.MaxNames {
			return apierror.Invalid(v.Path,
				"A filter of an MCP server's tools names more than %d tools. Leave some out.", hosted.MaxNames)
		}
		name, err := v.Text()
		f.Names[strings.Clone(name)] = true
		return err
	})
}

// readApproval reads a word, or {"always":…,"never":…}. Tools that neither names
// need approval.
func readApproval(v jsontext.Field) (*approval, *apierror.Error) {
	switch v.Str {
	case "always":
		return &approval{all: true}, nil
	case "never":
		return &approval{}, nil
	}

	if !v.IsObject() {
		return nil, apierror.Invalid(v.Path,
			"The field %q must be \"always\", \"never\", or an object with filters of tools.", v.Path)
	}

	a := &approval{all: true}

	return a, v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "always":
			a.always, err = readToolFilter(v)
		case "never":
			a.never, err = readToolFilter(v)
		default:
			err = apierror.Invalid(v.Path, "require_approval has only always and never.")
		}
		return err
	})
}

// newHosted finds the server: a configured one by its label, or one that the
// configuration lets requests name.
func (r *Reader) newHosted(at jsontext.Field, s *mcpServer) (*Server, *apierror.Error) {
	h := &Server{
		Server:   hosted.Server{Label: s.label, Description: s.description, Allowed: s.allowed},
		approval: approval{all: true},
		deferred: s.deferred,
	}
	switch {
	case s.label == "":
		return nil, apierror.Invalid(at.Path+".server_label", "An MCP server has no server_label.")
	case s.label == turn.FunctionsNamespace:
		return nil, apierror.Invalid(at.Path+".server_label",
			"The server_label %q is the namespace of the request's functions. Give the server another one.", s.label)
	case slices.ContainsFunc(r.Hosted, func(o *Server) bool { return o.Builtin == nil && o.Label == s.label }):
		return nil, apierror.Invalid(at.Path+".server_label", "Two MCP servers have the label %q.", item.Clip(s.label))
	}

	// Calls need approval unless the request or the operator says otherwise.
	if s.approval != nil {
		h.approval = *s.approval
	}

	var err error
	switch h.MCP, err = hosted.Find(r.config.Client, s.label, s.url, r.rc.Tenant); {
	case errors.Is(err, hosted.ErrNotConfigured):
		return nil, apierror.Invalid(at.Path+".server_url",
			"The MCP server %q has no server_url, and no server of this label is configured here. Give its "+
				"server_url.", item.Clip(s.label))
	case err != nil:
		return nil, apierror.Invalid(at.Path+".server_url", "%s", err)
	case !h.MCP.Trusted:
		// The server is the request's own: the operator has said nothing about it.
	case h.MCP.Approval:
		// A request cannot undo what the operator asks for.
		h.approval = approval{all: true}
	case s.approval == nil:
		h.approval = approval{}
	}

	return h, r.addHeader(at, s, h.MCP)
}

// addHeader adds the request's headers to those of the server. The field
// authorization takes precedence over the header of this name.
func (r *Reader) addHeader(at jsontext.Field, s *mcpServer, server *tools.Server) *apierror.Error {
	if s.authorization != "" {
		// Two values of one header would leave it to the server which of them counts.
		s.header.Del("Authorization")
		if err := server.AddHeader(http.Header{"Authorization": {"Bearer " + s.authorization}}); err != nil {
			return apierror.Invalid(at.Path+".authorization", "%s", err)
		}
	}
	if err := server.AddHeader(s.header); err != nil {
		return apierror.Invalid(at.Path+".headers", "%s", err)
	}
	return nil
}
