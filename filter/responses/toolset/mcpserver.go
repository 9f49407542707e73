package toolset

import (
	"net/http"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// api is how this API defines servers.
var api = hosted.API{
	Label: "server_label", URL: "server_url", Token: "authorization", Headers: "headers", Approvals: true,
	Container: "cntr_", Shown: func(_ string, seen *harmony.Tool) string { return definitionOf(seen) },
}

// noHosted is why tools of the type mcp cannot be used.
const noHosted = "MCP servers are not called here: that needs Envoy's loopback listener (the operator sets " +
	"loopback). Leave the tool out, or offer the server's tools as functions."

// readServer reads a tool of the type mcp.
func (r *Reader) readServer(at jsontext.Field) *apierror.Error {
	if !r.offer.Runs() {
		return apierror.Invalid(at.Path+".type", noHosted)
	}

	d := hosted.Definition{At: at.Path}
	err := at.Fields(func(key string, v jsontext.Field) *apierror.Error { return r.readServerField(&d, key, v) })
	if err != nil {
		return err
	}
	return r.offer.AddServer(&d)
}

func (r *Reader) readServerField(d *hosted.Definition, key string, v jsontext.Field) (err *apierror.Error) {
	switch key {
	case "type":
	case "server_label":
		d.Label, err = v.ShortText()
	case "server_url":
		d.URL, err = v.Text()
	case "server_description":
		d.Description, err = v.Text()
	case "authorization":
		d.Token, err = v.Text()
	case "headers":
		d.Header = http.Header{}
		fields := 0
		err = v.Entries(func(name string, v jsontext.Field) *apierror.Error {
			fields++
			if fields > hosted.MaxHeaders {
				return apierror.Invalid(v.Path, "An MCP server has more than %d headers. Leave some out.",
					hosted.MaxHeaders)
			}
			value, err := v.Text()
			d.Header.Set(strings.Clone(name), strings.Clone(value))
			return err
		})
	case "allowed_tools":
		d.Allowed, err = readToolFilter(v)
	case "require_approval":
		d.Approval, err = readApproval(v)
	case "defer_loading":
		var deferred bool
		// An empty filter is all tools of the server.
		if deferred, err = v.Switch(); deferred {
			d.Later = &hosted.Filter{}
		}
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
func readApproval(v jsontext.Field) (*hosted.Approval, *apierror.Error) {
	switch v.Str {
	case "always":
		return &hosted.Approval{All: true}, nil
	case "never":
		return &hosted.Approval{}, nil
	}

	if !v.IsObject() {
		return nil, apierror.Invalid(v.Path,
			"The field %q must be \"always\", \"never\", or an object with filters of tools.", v.Path)
	}

	a := &hosted.Approval{All: true}

	return a, v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "always":
			a.Always, err = readToolFilter(v)
		case "never":
			a.Never, err = readToolFilter(v)
		default:
			err = apierror.Invalid(v.Path, "require_approval has only always and never.")
		}
		return err
	})
}
