package toolset

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Built-in tools have fields of their own, such as vector_store_ids and size. A field
// that the schema of the server's tool has is an argument of every call, whatever the
// model writes there. Others have no effect, unless they limit what may be seen: then
// the tools that cannot be limited are not offered, and without any other the request
// is refused.

// builtinField is a field of a built-in tool.
type builtinField struct {
	name, raw string
	path      string // in the request
}

// maxBuiltinFields bounds the fields of a built-in tool: each is looked for in the schema
// of each tool of its server, and in each call.
const maxBuiltinFields = 64

// limits reports whether the field limits what a tool may see.
func (f *builtinField) limits() bool { return f.name == "filters" || f.name == "vector_store_ids" }

// readBuiltinFields reads the own fields of a built-in tool.
func (r *Reader) readBuiltinFields(name tools.Builtin, h *Server, at jsontext.Field) *apierror.Error {
	return at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch {
		case key == "type":
		// An object describes a new container, of which nothing can be chosen here.
		case key == "container" && name == tools.CodeInterpreter && v.Type == gjson.String:
			r.container, err = v.ShortText()
		case key == "container" && name == tools.CodeInterpreter:
			return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
				if key != "type" {
					r.ignored.Add(v.Path)
				}
				return nil
			})
		case len(h.fields) == maxBuiltinFields:
			return apierror.Invalid(at.Path, "A built-in tool has more than %d fields of its own. Leave some out.",
				maxBuiltinFields)
		default:
			// The fields outlive the body: they are used when the model calls the tool.
			h.fields = append(h.fields, builtinField{
				strings.Clone(key),
				string(jsontext.AppendCompact(nil, v.Raw)),
				strings.Clone(v.Path),
			})
		}

		return err
	})
}

// has reports whether a tool's schema has a property.
func has(t *tools.Tool, property string) bool {
	found := false
	// Not by the path of the property: its name may have the path's special characters.
	gjson.GetBytes(t.InputSchema, "properties").ForEach(func(key, _ gjson.Result) bool {
		found = key.Str == property && key.Type == gjson.String
		return !found
	})

	return found
}

// settleFields says what becomes of the fields of a built-in tool, once its server's
// tools are known. The tools that the model was trained with have none of the fields.
func (r *Reader) settleFields(h *Server) *apierror.Error {
	for i := range h.fields {
		f := &h.fields[i]
		var fit []tools.Tool
		for _, t := range h.Tools {
			if has(&t, f.name) {
				fit = append(fit, t)
			}
		}

		switch {
		case !h.Known:
			// Nothing is offered.
		case f.limits() && len(fit) == 0:
			return apierror.Invalid(f.path,
				"The server of the tool %q cannot limit what it sees by %q. Leave the field out, or the tool.", h.Label,
				item.Clip(f.name))
		case f.limits():
			// A tool that cannot be limited would show what the request has ruled out.
			h.Tools = fit
		case len(fit) == 0:
			r.ignored.Add(f.path)
		}
	}

	return nil
}

// WithFields returns the arguments of a call with the fields of the request that the
// tool's schema has. What the model has written there is left out, however often and
// in whatever case.
func (h *Server) WithFields(name, arguments string) string {
	t := h.Tool(name)
	var fields []*builtinField
	for i := range h.fields {
		if f := &h.fields[i]; t != nil && has(t, f.name) {
			fields = append(fields, f)
		}
	}

	if len(fields) == 0 {
		return arguments
	}

	// The fields are the request's: what the model writes in their place is left out, not merged.
	dst := []byte{'{'}
	member := func(key, raw string) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(jsontext.AppendString(dst, key), ':'), raw...)
	}
	if jsontext.IsObject(arguments) {
		gjson.Parse(arguments).ForEach(func(key, v gjson.Result) bool {
			for _, f := range fields {
				// Servers that read names without their case would take what the model wrote.
				if strings.EqualFold(key.Str, f.name) {
					return true
				}
			}
			member(key.Str, v.Raw)
			return true
		})
	}

	for _, f := range fields {
		member(f.name, f.raw)
	}

	return string(append(dst, '}'))
}
