package item

import (
	"bytes"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// JoinedTools are tools that join a conversation after its beginning, such as those
// that a tool search has found. They are an [Item] of the kind [Tools].
//
// The item is rendered at its place: as a developer message that has only a section
// with the tools. What precedes it stays as it is, so that the prompt of turn n+1
// begins with the tokens of turn n. Where the item is the first of a conversation,
// its tools stand in the conversation's first developer message, with those of
// Input.Tools. From there on the tools are tools of the request like those: calls
// of them have the client's names, Choice can name them, and limits and strict
// schemas apply to all together. A Prefix remembers them.
//
// A tool that has joined already, with the same definition, is not rendered again.
// Another definition replaces the first. Tools of one namespace may join in several
// items, and beside those of Input.Tools.
//
// An API whose clients name found tools by reference, after the output of a search,
// leaves deferred tools out of Input.Tools and adds such an item, with the tools'
// definitions, after the [Result] of the search. An API that searches for tools
// within a reply puts the tools that can be found into Input.Deferred, which does not
// render them, and passes an item with those that are found to Turn.Continue.
type JoinedTools struct {
	// With the client's names; plain functions are in FunctionsNamespace.
	Namespaces []harmony.Namespace
	// Tools whose arguments must follow their schemas.
	Strict map[ToolName]bool
}

// Clone returns a copy that has no memory in common; nil for nil.
func (j *JoinedTools) Clone() *JoinedTools {
	if j == nil {
		return nil
	}
	c := &JoinedTools{Namespaces: cloneNamespaces(j.Namespaces)}
	for name, strict := range j.Strict {
		if c.Strict == nil {
			c.Strict = map[ToolName]bool{}
		}
		c.Strict[ToolName{strings.Clone(name.Namespace), strings.Clone(name.Name), name.Builtin}] = strict
	}
	return c
}

func cloneNamespaces(namespaces []harmony.Namespace) []harmony.Namespace {
	clones := make([]harmony.Namespace, len(namespaces))
	for i := range namespaces {
		ns := &namespaces[i]
		clones[i] = harmony.Namespace{
			Name: strings.Clone(ns.Name), Description: strings.Clone(ns.Description),
			Tools: make([]harmony.Tool, len(ns.Tools)),
		}
		for k, t := range ns.Tools {
			clones[i].Tools[k] = harmony.Tool{
				Name: strings.Clone(t.Name), Description: strings.Clone(t.Description),
				Parameters: bytes.Clone(t.Parameters),
			}
		}
	}
	return clones
}

// Bytes returns the approximate size of the tools in memory; 0 for nil.
func (j *JoinedTools) Bytes() int {
	if j == nil {
		return 0
	}
	n := 0
	for i := range j.Namespaces {
		ns := &j.Namespaces[i]
		n += Overhead + len(ns.Name) + len(ns.Description)
		for k := range ns.Tools {
			t := &ns.Tools[k]
			n += Overhead + len(t.Name) + len(t.Description) + len(t.Parameters)
		}
	}
	for name := range j.Strict {
		n += Overhead + len(name.Namespace) + len(name.Name)
	}
	return n
}
