package hosted

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Argument is an argument of the calls of a built-in tool that the request sets, such as
// vector_store_ids and size.
//
// An argument that the schema of the server's tool has is one of every call, whatever the model
// writes there. Others have no effect, unless they limit what may be seen: then the tools that
// cannot be limited are not offered, and without any other the request is refused.
type Argument struct {
	Name, Raw string
	At        string // in the request
}

// limits reports whether the argument limits what a tool may see.
func (a *Argument) limits() bool { return a.Name == "filters" || a.Name == "vector_store_ids" }

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

// Settle says what becomes of the arguments that the request sets, once the server's tools are
// known: ignored are where those are that no tool takes. The tools that the model was trained with
// have none of them.
func (s *Server) Settle() (ignored []string, err *apierror.Error) {
	for i := range s.Arguments {
		a := &s.Arguments[i]
		var fit []tools.Tool
		for _, t := range s.Tools {
			if has(&t, a.Name) {
				fit = append(fit, t)
			}
		}

		switch {
		case !s.Known:
			// Nothing is offered.
		case a.limits() && len(fit) == 0:
			return nil, apierror.Invalid(a.At,
				"The server of the tool %q cannot limit what it sees by %q. Leave the field out, or the tool.",
				s.Label, jsontext.Clip(a.Name))
		case a.limits():
			// A tool that cannot be limited would show what the request has ruled out.
			s.Tools = fit
		case len(fit) == 0:
			ignored = append(ignored, a.At)
		}
	}

	return ignored, nil
}

// WithArguments returns the arguments of a call with those of the request that the tool's schema
// has. What the model has written there is left out, however often and in whatever case.
func (s *Server) WithArguments(name, arguments string) string {
	t := s.Tool(name)
	var set []*Argument
	for i := range s.Arguments {
		if a := &s.Arguments[i]; t != nil && has(t, a.Name) {
			set = append(set, a)
		}
	}

	if len(set) == 0 {
		return arguments
	}

	// They are the request's: what the model writes in their place is left out, not merged.
	dst := []byte{'{'}
	member := func(key, raw string) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(jsontext.AppendString(dst, key), ':'), raw...)
	}
	if jsontext.IsObject(arguments) {
		gjson.Parse(arguments).ForEach(func(key, v gjson.Result) bool {
			for _, a := range set {
				// Servers that read names without their case would take what the model wrote.
				if strings.EqualFold(key.Str, a.Name) {
					return true
				}
			}
			member(key.Str, v.Raw)
			return true
		})
	}

	for _, a := range set {
		member(a.Name, a.Raw)
	}

	return string(append(dst, '}'))
}

// Offers reports whether a call of a built-in tool is one that the model has been offered. An item
// of the conversation can bring other tools in the same namespace, which the server may have and
// the operator or the request leaves out.
func (s *Server) Offers(seen string) bool {
	return s.Builtin.Trained != nil || s.Tool(s.FromModel(seen)) != nil
}
