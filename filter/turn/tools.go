package turn

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// maxNameBytes bounds the names of tools and the ids of calls, in bytes.
const maxNameBytes = 256

// reserved holds the names that have a meaning for the model.
var reserved = map[string]bool{"functions": true, "browser": true, "python": true, "container": true}

// tool is a tool by the client's names. The name is "" if a built-in namespace
// itself is the tool.
type tool struct {
	namespace, name string
	builtin         bool
}

// isCode reports whether the tool is called with code, because it is a namespace.
func (t tool) isCode() bool { return t.builtin && t.name == "" }

func (t tool) toolName() ToolName { return ToolName{t.namespace, t.name, t.builtin} }

// toolset maps the tools of one request between the client's names and the names
// that the model sees.
type toolset struct {
	namespaces  []harmony.Namespace                // with the model's names
	builtins    []harmony.Namespace                // of the system message, with the model's names
	byRecipient map[string]tool                    // by the model's namespace.name, or by a built-in namespace
	byName      map[string][]tool                  // by the model's name, without namespace
	folded      *foldedNames                       // of byRecipient and byName; nil: not needed yet
	joined      *joinedSet                         // tools that join later; nil: none do
	texts       map[ToolName]string                // the only parameter of tools that take one, a string
	asIs        map[ToolName]bool                  // see [Input].AsIs
	enforced    map[ToolName]bool                  // see [Input].Strict
	schemas     map[ToolName]json.RawMessage       // by which arguments are checked; nil: they are not
	validators  map[ToolName]*constraint.Validator // of these schemas, as far as they were needed
	formats     map[ToolName]constraint.Format     // of arguments that are asked for again, as far as they were needed
	strict      map[ToolName]bool                  // of the tools that join: the arguments must follow their schemas
}

// newToolset checks the tools of a request and returns their toolset.
func newToolset(namespaces, builtins []harmony.Namespace, limits Limits) (*toolset, *apierror.Error) {
	s := &toolset{byRecipient: map[string]tool{}, byName: map[string][]tool{}}
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
		seen := harmony.Namespace{Name: modelNamespace(ns.Name), Description: ns.Description, Tools: make([]harmony.Tool, 0, len(ns.Tools))}
		if spaces[seen.Name] {
			return nil, apierror.Invalid("tools", "Two tool namespaces have the name %q, or names that differ only in characters other than letters, digits, _ and -.", seen.Name)
		}
		spaces[seen.Name] = true
		for _, t := range ns.Tools {
			if err := limits.CheckTool(t); err != nil {
				return nil, err
			}
			client := tool{strings.Clone(ns.Name), strings.Clone(t.Name), false}
			t.Name = ModelName(t.Name)
			recipient := seen.Name + "." + t.Name
			if _, taken := s.byRecipient[recipient]; taken {
				twice = append(twice, client.name)
				continue
			}
			s.byRecipient[recipient] = client
			s.addText(client, t.Parameters)
			name := recipient[len(seen.Name)+1:] // t.Name may be a part of the request's body
			s.byName[name] = append(s.byName[name], client)
			seen.Tools = append(seen.Tools, t)
		}
		s.namespaces = append(s.namespaces, seen)
	}
	if twice != nil {
		return nil, sameNames(twice)
	}
	err := s.addBuiltins(builtins, limits)
	return s, err
}

// sameNames returns the error about names that several tools have.
func sameNames(names []string) *apierror.Error {
	return apierror.Invalid("tools", "%s, or names that differ only in characters other than letters, digits, _ and -.",
		apierror.One(names, "Two tools have the name %s", "Two tools have each of the names %s"))
}

// repairs reports whether the arguments of a call are repaired.
func (s *toolset) repairs(m *Model, c *CalledTool) bool {
	name := ToolName{c.Namespace, c.Name, c.Builtin}
	return m.ToolArguments != ArgumentsPass && !c.IsCode() && c.Namespace != "" && !s.asIs[name] && !s.enforced[name] && !s.strict[name]
}

// maxTextSchema bounds the schemas in which a tool's only parameter is looked for.
const maxTextSchema = 4 << 10

// addText notes the parameter of a tool that takes one, if it is a string.
func (s *toolset) addText(t tool, parameters json.RawMessage) {
	if len(parameters) > maxTextSchema || bytes.Count(parameters, []byte(`"type"`)) > 2 {
		return
	}
	only, n := "", 0
	gjson.GetBytes(parameters, "properties").ForEach(func(name, schema gjson.Result) bool {
		n++
		if schema.Get("type").Str == "string" && !schema.Get("enum").Exists() {
			only = name.Str
		}
		return n < 2
	})
	if only == "" || n != 1 {
		return
	}
	if s.texts == nil {
		s.texts = map[ToolName]string{}
	}
	s.texts[t.toolName()] = strings.Clone(only)
}

// addBuiltins adds the tools of the system message. Their namespaces are names of
// the model. If a call has no namespace, the client's tools take precedence.
func (s *toolset) addBuiltins(namespaces []harmony.Namespace, limits Limits) *apierror.Error {
	if len(namespaces) == 0 {
		return nil
	}
	taken := map[string]bool{}
	for name := range s.byName {
		taken[fold(name)] = true
	}
	for _, ns := range namespaces {
		if same := func(n harmony.Namespace) bool { return n.Name == ns.Name }; slices.ContainsFunc(s.namespaces, same) || slices.ContainsFunc(s.builtins, same) {
			return apierror.Invalid("tools", "The tool namespace %q has the name of a built-in one. Rename it.", ns.Name)
		}
		seen := harmony.Namespace{Name: ns.Name, Description: ns.Description}
		named := map[string]tool{} // by the name that the model sees
		if len(ns.Tools) == 0 {
			named[ns.Name] = tool{ns.Name, "", true}
		}
		for _, t := range ns.Tools {
			if err := limits.CheckTool(t); err != nil {
				return err
			}
			client := tool{ns.Name, t.Name, true}
			t.Name = plainName(t.Name)
			if _, twice := named[t.Name]; twice {
				return apierror.Invalid("tools", "Two tools of the namespace %q have the name %q, or names that differ only in characters other than letters, digits, _ and -.", ns.Name, client.name)
			}
			named[t.Name] = client
			seen.Tools = append(seen.Tools, t)
		}
		for name, t := range named {
			s.byRecipient[recipient(t)] = t
			if !taken[fold(name)] {
				s.byName[name] = append(s.byName[name], t)
			}
		}
		s.builtins = append(s.builtins, seen)
		if len(s.byRecipient) > limits.Tools {
			return apierror.Invalid("tools", "The request has more than %d tools.", limits.Tools)
		}
	}
	return nil
}

// each calls visit with the recipient and the parameters of every tool, in order.
func (s *toolset) each(visit func(recipient string, parameters json.RawMessage) *apierror.Error) *apierror.Error {
	for _, list := range [][]harmony.Namespace{s.namespaces, s.builtins} {
		for _, ns := range list {
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

// CheckTool returns why a tool cannot be offered: it has no name, a name of more
// than 256 bytes, or parameters that are too large or nest too deep. nil means
// that it can.
func (l *Limits) CheckTool(t harmony.Tool) *apierror.Error {
	switch {
	case t.Name == "":
		return apierror.Invalid("tools", "A tool has no name. Give every tool one.")
	case len(t.Name) > maxNameBytes:
		return apierror.Invalid("tools", "A tool's name is longer than %d bytes.", maxNameBytes)
	case len(t.Parameters) > l.SchemaBytes:
		return apierror.Invalid("tools", "The parameters of tool %q are larger than %d bytes.", t.Name, l.SchemaBytes)
	case jsontext.Depth(t.Parameters) > l.SchemaDepth:
		return apierror.Invalid("tools", "The parameters of tool %q nest more than %d levels deep.", t.Name, l.SchemaDepth)
	}
	return nil
}

// recipient returns the recipient of calls of a tool. The tool need not be offered:
// it may be one of the conversation's earlier calls.
func recipient(t tool) string {
	switch {
	case !t.builtin:
		return modelNamespace(t.namespace) + "." + ModelName(t.name)
	case t.isCode():
		return t.namespace
	}
	return t.namespace + "." + plainName(t.name)
}

func modelNamespace(namespace string) string {
	if namespace == "" || namespace == FunctionsNamespace {
		return FunctionsNamespace
	}
	return ModelName(namespace)
}

// ModelName returns the name that the model sees for a client's name: other
// characters than letters, digits, _ and - become _, and a reserved name gets a _
// at its end.
func ModelName(name string) string {
	if reserved[name] {
		return name + "_"
	}
	return plainName(name)
}

// plainName replaces all characters of a name except letters, digits, _ and - by _.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && isNameByte(byte(r)) {
			return r
		}
		return '_'
	}, name)
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// address is what a message's recipient is.
type address uint8

const (
	noRecipient address = iota // no recipient, or a word that is none
	offered                    // a tool of the request
	respelled                  // a tool of the request, in another spelling
	unknown                    // something else
)

// resolve returns the tool that a recipient means, in this order: the tool of
// exactly this recipient; the only tool with its name, if the recipient has no
// namespace or that of plain functions; the only tool that fits in another letter
// case, with other separators, or with a part of the header appended. A function of
// a namespace that is a tool itself means that tool. A recipient in another
// namespace is unknown, even if a tool has its name; the unknown tool's name
// includes the namespace. A word of the header is no recipient.
func (s *toolset) resolve(recipient string) (tool, address) {
	if t, ok := s.byRecipient[recipient]; ok {
		return t, offered
	}
	clean := cleanRecipient(recipient)
	name := strings.TrimPrefix(clean, FunctionsNamespace+".")
	if ts := s.byName[name]; len(ts) == 1 {
		if clean == recipient {
			return ts[0], offered
		}
		return ts[0], respelled
	}
	if t, ok := s.nearest(clean); ok {
		return t, respelled
	}
	space, _, _ := strings.Cut(clean, ".")
	if t, ok := s.byRecipient[strings.ToLower(space)]; ok {
		return t, respelled
	}
	if headerWords[clean[strings.LastIndexByte(clean, '.')+1:]] {
		return tool{}, noRecipient
	}
	return tool{name: plainName(name)}, unknown
}

// foldedName is a folded spelling of a tool's name.
type foldedName struct {
	spelling string
	tool     tool
}

// foldedNames are the names of a toolset, folded once: a model can make thousands of calls
// of tools that nobody has.
type foldedNames struct {
	whole []foldedName // with their namespaces
	alone []foldedName // of tools that no other has the name of
}

func (s *toolset) foldNames() *foldedNames {
	f := &foldedNames{}
	for recipient, t := range s.byRecipient {
		if fold(recipient[strings.LastIndexByte(recipient, '.')+1:]) != "" {
			f.whole = append(f.whole, foldedName{fold(recipient), t})
		}
	}
	for name, ts := range s.byName {
		if name = fold(name); name != "" && len(ts) == 1 {
			f.alone = append(f.alone, foldedName{name, ts[0]}, foldedName{FunctionsNamespace + name, ts[0]})
		}
	}
	return f
}

// nearest returns the only tool that a recipient means if letter case, separators
// and appended words of the header are ignored. Of several tools whose names are
// prefixes of the recipient, the longest name counts.
func (s *toolset) nearest(recipient string) (tool, bool) {
	if s.folded == nil {
		s.folded = s.foldNames()
	}
	folded := fold(recipient)

	found := longestPrefixes(folded, s.folded.whole)
	if len(found) == 0 { // else the recipient has a namespace, or is one
		found = longestPrefixes(folded, s.folded.alone)
	}
	if len(found) != 1 {
		return tool{}, false
	}
	return found[0], true
}

// longestPrefixes returns the tools with the longest name that a folded recipient begins
// with, and behind which it has words of a header only.
func longestPrefixes(folded string, names []foldedName) (found []tool) {
	longest := 0
	for i := range names {
		name := &names[i]
		rest, ok := strings.CutPrefix(folded, name.spelling)
		if !ok || len(name.spelling) < longest || !onlyHeaderWords(rest) {
			continue
		}

		if len(name.spelling) > longest {
			longest, found = len(name.spelling), found[:0]
		}
		if !slices.Contains(found, name.tool) {
			found = append(found, name.tool)
		}
	}
	return found
}

// headerWords are words of a message header that a malformed header can have in
// place of the recipient. The empty word is one of them.
var headerWords = map[string]bool{
	"": true, "all": true, "assistant": true, "user": true, "system": true, "developer": true, "functions": true,
	"analysis": true, "commentary": true, "final": true, "json": true, "code": true, "to": true,
}

// gluedWords are words of a message header that a malformed header can have
// directly behind the recipient.
var gluedWords = []string{"commentary", "analysis", "final", "json", "code", "assistant", "constrain", "channel", "message"}

// onlyHeaderWords reports whether s is a sequence of gluedWords.
func onlyHeaderWords(s string) bool {
next:
	for s != "" {
		for _, w := range gluedWords {
			if rest, ok := strings.CutPrefix(s, w); ok {
				s = rest
				continue next
			}
		}
		return false
	}
	return true
}

// cleanRecipient removes from a recipient the characters that names cannot have, and
// everything from the first control token on.
func cleanRecipient(recipient string) string {
	recipient, _, _ = strings.Cut(recipient, "<|")
	recipient = strings.Map(func(r rune) rune {
		if r < 0x80 && (isNameByte(byte(r)) || r == '.') {
			return r
		}
		return -1
	}, recipient)
	recipient = strings.Trim(recipient, ".")
	return recipient[:min(len(recipient), maxNameBytes)]
}

// fold reduces a name to its letters, in lower case, and digits.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, name)
}
