package toolset

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/arguments"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Set maps the tools of one request between the client's names and the names
// that the model sees.
type Set struct {
	// With the model's names.
	Namespaces []harmony.Namespace
	// Of the system message, with the model's names.
	Builtins []harmony.Namespace
	// By the model's namespace.name, or by a built-in namespace.
	byRecipient map[string]item.ToolName
	// By the model's name, without namespace.
	byName map[string][]item.ToolName

	// Of byRecipient and byName; nil: not needed yet.
	spellings *spellings
	// Tools that join later; nil: none do.
	joined *joinedSet

	// How arguments are read: the only parameter of tools that take one, a string.
	texts map[item.ToolName]textParameter
	// See [request.Input].AsIs.
	asIs map[item.ToolName]bool
	// See [request.Input].Withdrawn.
	withdrawn map[item.ToolName]bool
	// See [request.Input].Strict.
	enforced map[item.ToolName]bool
	// Of the tools that join: the arguments must follow their schemas.
	strict map[item.ToolName]bool

	// By which arguments are checked; nil: they are not.
	schemas map[item.ToolName]json.RawMessage
}

// Empty reports whether no call can be made.
func (s *Set) Empty() bool { return len(s.byRecipient) == 0 }

// Named returns the tool of a recipient that the toolset has.
func (s *Set) Named(recipient string) item.ToolName { return s.byRecipient[recipient] }

// Schema returns the schema by which the arguments of a tool are checked; nil: they are not.
func (s *Set) Schema(name item.ToolName) json.RawMessage { return s.schemas[name] }

// newSet checks the tools of a request and returns their toolset.
func newSet(namespaces, builtins []harmony.Namespace, limits request.Limits) (*Set, *apierror.Error) {
	set := &Set{byRecipient: map[string]item.ToolName{}, byName: map[string][]item.ToolName{}}
	spaces := map[string]bool{}
	var twice []string
	count := 0

	for _, ns := range namespaces {
		if len(ns.Tools) == 0 {
			continue
		}
		if count += len(ns.Tools); count > limits.Tools {
			return nil, apierror.Invalid("tools", "The request has more than %d tools.", limits.Tools)
		}

		seen := harmony.Namespace{
			Name: item.ModelNamespace(ns.Name), Description: ns.Description,
			Tools: make([]harmony.Tool, 0, len(ns.Tools)),
		}
		if spaces[seen.Name] {
			return nil, apierror.Invalid("tools",
				"Two tool namespaces have the name %q, or names that differ only in characters other than "+
					"letters, digits, _ and -.", seen.Name)
		}
		spaces[seen.Name] = true

		// Tools of one name are listed together, so that a client repairs all of them at once.
		for _, declared := range ns.Tools {
			if err := limits.CheckTool(declared); err != nil {
				return nil, err
			}

			client := item.ToolName{Namespace: strings.Clone(ns.Name), Name: strings.Clone(declared.Name)}
			declared.Name = item.ModelName(declared.Name)
			recipient := seen.Name + "." + declared.Name
			if _, taken := set.byRecipient[recipient]; taken {
				twice = append(twice, client.Name)
				continue
			}
			set.byRecipient[recipient] = client
			set.addText(client, declared.Parameters)

			// A part of the recipient, and not of the request's body, which is gone when the model
			// calls.
			name := recipient[len(seen.Name)+1:]
			set.byName[name] = append(set.byName[name], client)
			seen.Tools = append(seen.Tools, declared)
		}

		set.Namespaces = append(set.Namespaces, seen)
	}
	if twice != nil {
		return nil, sameNames(twice)
	}

	err := set.addBuiltins(builtins, limits)
	return set, err
}

// sameNames returns the error about names that several tools have.
func sameNames(names []string) *apierror.Error {
	return apierror.Invalid("tools", "%s, or names that differ only in characters other than letters, digits, _ and -.",
		apierror.One(names, "Two tools have the name %s", "Two tools have each of the names %s"))
}

// Repairs reports whether the arguments of calls of a tool are repaired.
func (s *Set) Repairs(m *request.Model, name item.ToolName) bool {
	if m.ToolArguments == request.ArgumentsPass {
		return false
	}

	// Code is no JSON, and nobody knows what an unknown tool takes. What a grammar enforces is
	// right already, or was cut.
	return !name.IsCode() && name.Namespace != "" && !s.asIs[name] && !s.enforced[name] && !s.strict[name]
}

// textParameter is the only parameter of a tool, a string of any text.
type textParameter struct {
	name string
	// A call may leave it out.
	optional bool
}

// Repairer returns the repairer of a call of a tool. A header that does not say that the arguments
// are JSON may have the only parameter's text behind it: gpt-oss calls python with code, and
// browser.search with JSON, both under "code".
func (s *Set) Repairer(called item.ToolName, contentType string) *arguments.Repairer {
	only := s.texts[called]
	if only.name == "" || isJSONType(contentType) {
		return arguments.New(only.name)
	}
	return arguments.NewText(only.name, only.optional)
}

// TypeJSON is the content type of arguments that are JSON, as a tolerant parser reads it.
const TypeJSON = "json"

// isJSONType reports whether a content type is that of JSON. A strict parser has the control
// token in it.
func isJSONType(contentType string) bool {
	return contentType == harmony.ContentTypeJSON || strings.EqualFold(contentType, TypeJSON)
}

// TypeOf returns the content type of a call, which a model may write at the end of the
// recipient: functions.searchjson.
func TypeOf(header *harmony.Header, called item.ToolName) string {
	if header.ContentType != "" {
		return header.ContentType
	}
	if endsWithJSON(header.Recipient) && !endsWithJSON(called.Name) {
		return TypeJSON
	}
	return ""
}

func endsWithJSON(name string) bool {
	return strings.HasSuffix(fold(clip(name, maxRecipient)), TypeJSON)
}

// maxTextSchema bounds the schemas in which a tool's only parameter is looked for.
const maxTextSchema = 4 << 10

// plainText are the keywords of a tool's parameters, and of one of them, that any text follows.
// Of a tool with others, such as pattern, const or allOf, nobody knows before the call ends
// whether the text is what it takes.
var plainText = map[string]bool{
	"type": true, "properties": true, "required": true, "title": true, "description": true, "default": true,
	"examples": true, "example": true, "deprecated": true, "$schema": true, "$id": true, "$comment": true,
	"additionalProperties": true,
}

// takesText reports whether a schema has none but these keywords. Properties that it does not
// name must be forbidden, or not spoken of.
func takesText(schema gjson.Result) bool {
	plain := true
	schema.ForEach(func(name, value gjson.Result) bool {
		plain = plainText[name.Str] && (name.Str != "additionalProperties" || value.Type == gjson.False)
		return plain
	})
	return plain
}

// addText notes the parameter of a tool that takes one, if it is a string of any text.
func (s *Set) addText(t item.ToolName, parameters json.RawMessage) {
	if len(parameters) > maxTextSchema || bytes.Count(parameters, []byte(`"type"`)) > 2 {
		return
	}

	only, n := "", 0
	whole := gjson.ParseBytes(parameters)
	if !takesText(whole) {
		return
	}
	whole.Get("properties").ForEach(func(name, schema gjson.Result) bool {
		n++
		if schema.Get("type").Str == "string" && takesText(schema) {
			only = name.Str
		}
		return n < 2
	})

	// One more that must be there is a parameter that has no schema.
	required := 0
	for name := range jsontext.List(whole.Get("required")) {
		required++
		if required > 1 || name.Str != only {
			return
		}
	}

	// An object of a text and something else could not be the text.
	if only == "" || n != 1 {
		return
	}
	if s.texts == nil {
		s.texts = map[item.ToolName]textParameter{}
	}
	s.texts[t] = textParameter{name: strings.Clone(only), optional: required == 0}
}

// addBuiltins adds the tools of the system message. Their namespaces are names of
// the model. If a call has no namespace, the client's tools take precedence.
func (s *Set) addBuiltins(namespaces []harmony.Namespace, limits request.Limits) *apierror.Error {
	if len(namespaces) == 0 {
		return nil
	}

	// By folded name: a model that writes a name in another way means the client's tool as well.
	taken := map[string]bool{}
	for name := range s.byName {
		taken[fold(name)] = true
	}

	for _, ns := range namespaces {
		same := func(n harmony.Namespace) bool { return n.Name == ns.Name }
		if slices.ContainsFunc(s.Namespaces, same) || slices.ContainsFunc(s.Builtins, same) {
			return apierror.Invalid("tools",
				"The tool namespace %q has the name of a built-in one. Rename it.", ns.Name)
		}

		seen := harmony.Namespace{Name: ns.Name, Description: ns.Description}

		// By the name that the model sees.
		named := map[string]item.ToolName{}
		if len(ns.Tools) == 0 {
			named[ns.Name] = item.ToolName{Namespace: ns.Name, Name: "", Builtin: true}
		}
		for _, declared := range ns.Tools {
			if err := limits.CheckTool(declared); err != nil {
				return err
			}
			client := item.ToolName{Namespace: ns.Name, Name: declared.Name, Builtin: true}
			declared.Name = item.PlainName(declared.Name)
			if _, twice := named[declared.Name]; twice {
				return apierror.Invalid("tools",
					"Two tools of the namespace %q have the name %q, or names that differ only in characters "+
						"other than letters, digits, _ and -.", ns.Name, client.Name)
			}
			named[declared.Name] = client
			seen.Tools = append(seen.Tools, declared)
		}

		for name, declared := range named {
			s.byRecipient[item.Recipient(declared)] = declared
			if !taken[fold(name)] {
				s.byName[name] = append(s.byName[name], declared)
			}
		}

		s.Builtins = append(s.Builtins, seen)
		if len(s.byRecipient) > limits.Tools {
			return apierror.Invalid("tools", "The request has more than %d tools.", limits.Tools)
		}
	}
	return nil
}

// each calls visit with the recipient and the parameters of every tool that may be called, in
// order.
func (s *Set) each(offer func(recipient string, parameters json.RawMessage) *apierror.Error) *apierror.Error {
	visit := func(recipient string, parameters json.RawMessage) *apierror.Error {
		if s.withdrawn[s.byRecipient[recipient]] {
			return nil
		}
		return offer(recipient, parameters)
	}

	for _, list := range [][]harmony.Namespace{s.Namespaces, s.Builtins} {
		for _, ns := range list {
			// A namespace that is a tool itself.
			if len(ns.Tools) == 0 {
				if err := visit(ns.Name, nil); err != nil {
					return err
				}
			}
			for _, t := range ns.Tools {
				if err := visit(ns.Name+"."+t.Name, s.parameters(ns.Name+"."+t.Name, t.Parameters)); err != nil {
					return err
				}
			}
		}
	}
	return s.eachJoined(visit)
}

// keepSchemas keeps the schemas of the tools by which the arguments of calls are checked.
func (s *Set) keepSchemas() {
	s.schemas = map[item.ToolName]json.RawMessage{}

	// The parameters are a part of the request's body, which is gone when the model calls.
	for _, list := range [][]harmony.Namespace{s.Namespaces, s.Builtins} {
		for _, ns := range list {
			for _, t := range ns.Tools {
				if len(t.Parameters) > 0 {
					s.schemas[s.byRecipient[ns.Name+"."+t.Name]] = slices.Clone(t.Parameters)
				}
			}
		}
	}
}
