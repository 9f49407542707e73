package toolset

import (
	"strings"

	"github.com/tidwall/gjson"

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
// model.
func (r *Reader) readBuiltin(kind string, v jsontext.Field) *apierror.Error {
	name := builtinOf(kind)
	s, err := r.offer.AddBuiltin(name, kind, v.Path)
	switch {
	case err != nil:
		return err
	case s == nil:
		r.ignored.Add("tools." + item.Clip(kind))
		return nil
	}

	// The arguments can be settled once the server's tools are listed; those of trained tools are known.
	if err := r.readArguments(name, s, v); err != nil || !s.Known {
		return err
	}
	ignored, err := s.Settle()
	r.ignore(ignored)
	return err
}

// ignore notes what has no effect.
func (r *Reader) ignore(paths []string) {
	for _, path := range paths {
		r.ignored.Add(path)
	}
}

// maxBuiltinFields bounds the fields of a built-in tool: each is looked for in the schema
// of each tool of its server, and in each call.
const maxBuiltinFields = 64

// readArguments reads the own fields of a built-in tool: they are arguments of its calls.
func (r *Reader) readArguments(name tools.Builtin, s *hosted.Server, at jsontext.Field) *apierror.Error {
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
		case len(s.Arguments) == maxBuiltinFields:
			return apierror.Invalid(at.Path, "A built-in tool has more than %d fields of its own. Leave some out.",
				maxBuiltinFields)
		default:
			// The fields outlive the body: they are used when the model calls the tool.
			s.Arguments = append(s.Arguments, hosted.Argument{
				Name: strings.Clone(key),
				Raw:  string(jsontext.AppendCompact(nil, v.Raw)),
				At:   strings.Clone(v.Path),
			})
		}

		return err
	})
}
