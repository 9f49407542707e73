package prompt

import (
	"bytes"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
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
