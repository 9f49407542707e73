package turn

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// opening is what a conversation begins with, which stands in the first developer
// message: tools, and instructions after them.
type opening struct {
	// With the client's names.
	tools        []harmony.Namespace
	instructions string
}

// cutOpening splits the opening from a conversation's items.
func cutOpening(items []item.Item) (opening, []item.Item) {
	var o opening
	for len(items) > 0 && (items[0].Kind == item.Tools || items[0].Blank()) {
		if items[0].Kind == item.Tools {
			o.tools = append(o.tools, items[0].Tools.Namespaces...)
		}
		items = items[1:]
	}
	if len(items) > 0 && items[0].Kind == item.Instructions {
		o.instructions, items = items[0].Text, items[1:]
	}
	return o, items
}

// onlyTools reports whether the model is shown nothing but tools of a conversation so far.
func onlyTools(items []item.Item) bool {
	return !slices.ContainsFunc(items, func(i item.Item) bool { return i.Kind != item.Tools && !i.Blank() })
}

// joinedIn returns the tools of items after those that joined before.
func joinedIn(before []*item.JoinedTools, items []item.Item) []*item.JoinedTools {
	// Other prefixes have the array too.
	joined := slices.Clip(before)
	for i := range items {
		if items[i].Kind == item.Tools {
			joined = append(joined, items[i].Tools)
		}
	}
	return joined
}

// knownTools are the definitions of tools that have joined.
type knownTools map[item.ToolName]harmony.Tool

// add adds tools, and returns those that were not known with this definition.
func (k knownTools) add(joined *item.JoinedTools) []harmony.Namespace {
	var added []harmony.Namespace
	for i := range joined.Namespaces {
		ns := &joined.Namespaces[i]
		next := harmony.Namespace{Name: ns.Name, Description: ns.Description}
		for _, t := range ns.Tools {
			name := item.ToolName{Namespace: ns.Name, Name: t.Name}
			// What the model has been shown is not shown again.
			if old, ok := k[name]; ok && old.Description == t.Description && bytes.Equal(old.Parameters, t.Parameters) {
				continue
			}
			k[name] = t
			next.Tools = append(next.Tools, t)
		}
		if len(next.Tools) > 0 {
			added = append(added, next)
		}
	}
	return added
}

// toolsMessage returns the message of tools that join; false if the model has them
// all.
func (k knownTools) message(joined *item.JoinedTools) (harmony.Message, bool) {
	added := inModelNames(nil, k.add(joined))
	content := &harmony.DeveloperContent{Tools: added}
	return harmony.Message{Role: harmony.RoleDeveloper, Content: []harmony.Content{content}}, len(added) > 0
}

// inModelNames appends namespaces with the names that the model sees to others.
// Namespaces of one name become one. A tool replaces one of the same name.
func inModelNames(dst, namespaces []harmony.Namespace) []harmony.Namespace {
	// The caller's namespaces are those of a toolset, or of a prefix.
	dst = slices.Clone(dst)
	merged := map[string]*mergedSpace{}
	for i := range namespaces {
		ns := &namespaces[i]
		name := item.ModelNamespace(ns.Name)
		space := merged[name]
		if space == nil {
			at := slices.IndexFunc(dst, func(n harmony.Namespace) bool { return n.Name == name })
			if at < 0 {
				at, dst = len(dst), append(dst, harmony.Namespace{Name: name, Description: ns.Description})
			}
			space = newMergedSpace(at, dst[at].Tools)
			merged[name] = space
		}

		for _, t := range ns.Tools {
			t.Name = item.ModelName(t.Name)
			space.put(t)
		}
	}

	for _, space := range merged {
		dst[space.at].Tools = space.tools
	}
	return dst
}

// mergedSpace is a namespace that others are being added to. Its index is made once: a
// conversation can have thousands of items that define the same tools again.
type mergedSpace struct {
	// In the list of namespaces.
	at    int
	tools []harmony.Tool
	// Of the tools, by name.
	index map[string]int
}

func newMergedSpace(at int, tools []harmony.Tool) *mergedSpace {
	m := &mergedSpace{at: at, tools: slices.Clone(tools), index: make(map[string]int, len(tools))}
	for i := range tools {
		m.index[tools[i].Name] = i
	}
	return m
}

// put adds a tool, or replaces the one of its name.
func (m *mergedSpace) put(t harmony.Tool) {
	if i, ok := m.index[t.Name]; ok {
		m.tools[i] = t
		return
	}
	m.index[t.Name] = len(m.tools)
	m.tools = append(m.tools, t)
}

// newRequestToolset returns the toolset of a request: its own tools, those that join
// in the conversation, and those that are deferred.
func newRequestToolset(
	rc *request.Context, in *request.Input, before *Prefix, items []item.Item,
) (*toolset, *apierror.Error) {
	set, err := newToolset(in.Tools, in.Builtins, rc.Limits)
	if err == nil && rc.Model.ToolArguments == request.ArgumentsRetry {
		set.keepSchemas()
	}
	if err != nil {
		return nil, err
	}
	set.asIs, set.enforced, set.withdrawn = in.AsIs, in.Strict, in.Withdrawn
	if err := request.RoomForSchemas(rc, in.Tools); err != nil {
		return nil, err
	}

	joined := joinedIn(before.joined, items)
	if len(joined)+len(in.Deferred) == 0 {
		return set, nil
	}

	set.strict = map[item.ToolName]bool{}
	set.joined = &joinedSet{at: map[string]int{}}
	if err := spendJoins(rc, joined, 1); err != nil {
		return nil, err
	}

	// Deferred tools join first, so that what a search has found replaces them.
	if err := set.join(in.Deferred, rc.Limits); err != nil {
		return nil, err
	}
	for _, j := range joined {
		if err := set.join(j.Namespaces, rc.Limits); err != nil {
			return nil, err
		}
		if err := request.RoomForSchemas(rc, j.Namespaces); err != nil {
			return nil, err
		}
		maps.Copy(set.strict, j.Strict)
	}
	return set, nil
}

// joinSteps is how many steps of the request's work it takes to have a tool join. A stored
// item that a few bytes name can bring hundreds of tools, and be named again and again.
const joinSteps = 20

// spendJoins takes the steps of having tools join so many times.
func spendJoins(rc *request.Context, joined []*item.JoinedTools, times int) *apierror.Error {
	n := 0
	for _, j := range joined {
		for i := range j.Namespaces {
			n += 1 + len(j.Namespaces[i].Tools)
		}
	}

	return rc.Spend("", joinSteps*n*times)
}

// joinedSet are the tools of a toolset that are not in the request's own namespaces.
type joinedSet struct {
	tools []joinedTool
	// The index of a tool, by recipient.
	at map[string]int
}

// joinedTool is one of them. Its parameters replace those of the request's own tool
// of the same recipient.
type joinedTool struct {
	recipient  string
	parameters json.RawMessage
	// The request has a tool of its own with this recipient.
	replaces bool
}

// join adds the tools of namespaces, or replaces their definitions.
func (s *toolset) join(namespaces []harmony.Namespace, limits request.Limits) *apierror.Error {
	for i := range namespaces {
		for _, t := range namespaces[i].Tools {
			if err := limits.CheckTool(t); err != nil {
				return err
			}

			name := item.ToolName{Namespace: strings.Clone(namespaces[i].Name), Name: strings.Clone(t.Name)}
			if err := s.joinTool(name, t.Parameters); err != nil {
				return err
			}
			if len(s.byRecipient) > limits.Tools {
				return apierror.Invalid("tools",
					"The request has more than %d tools, with those that a tool search has found.", limits.Tools)
			}
		}
	}
	return nil
}

func (s *toolset) joinTool(client item.ToolName, parameters json.RawMessage) *apierror.Error {
	recipient := item.Recipient(client)
	known, replaces := s.byRecipient[recipient]
	if replaces && known != client {
		return sameNames([]string{client.Name})
	}

	// Its definition is replaced, where it stands.
	if i, ok := s.joined.at[recipient]; ok {
		s.joined.tools[i].parameters = parameters
		return nil
	}

	s.joined.at[recipient] = len(s.joined.tools)
	s.joined.tools = append(s.joined.tools, joinedTool{recipient, parameters, replaces})
	if replaces {
		return nil
	}

	// A tool that nobody had joins all tables by which calls find their tools.
	s.byRecipient[recipient] = client
	name := item.ModelName(client.Name)
	// The client's own tools take precedence over built-in ones.
	own := slices.DeleteFunc(slices.Clone(s.byName[name]), func(t item.ToolName) bool { return t.Builtin })
	s.byName[name] = append(own, client)
	s.spellings = nil
	return nil
}

// isStrict reports whether the arguments of a tool must follow its schema.
func (s *toolset) isStrict(in *request.Input, name item.ToolName) bool {
	if strict, joined := s.strict[name]; joined {
		return strict
	}
	return in.Strict[name]
}

// parameters returns the parameters of one of the request's own tools, or those that
// have replaced them.
func (s *toolset) parameters(recipient string, own json.RawMessage) json.RawMessage {
	if s.joined != nil {
		if i, ok := s.joined.at[recipient]; ok {
			return s.joined.tools[i].parameters
		}
	}
	return own
}

// eachJoined calls visit with every tool that is not one of the request's own.
func (s *toolset) eachJoined(visit func(recipient string, parameters json.RawMessage) *apierror.Error) *apierror.Error {
	if s.joined == nil {
		return nil
	}

	for _, t := range s.joined.tools {
		if t.replaces {
			continue
		}
		if err := visit(t.recipient, t.parameters); err != nil {
			return err
		}
	}
	return nil
}

// rendered drops the definitions of the tools, which the reply does not need.
func (s *toolset) rendered() { s.namespaces, s.builtins, s.joined = nil, nil, nil }
