// Package item holds what a conversation and a reply consist of, with the client's names: items,
// tools, events, and the Harmony message that an item is.
//
// A conversation is a list of [Item]s: texts, reasoning, calls and their results, and tools that join
// it. [Message] makes the message of one, in the form that the model was trained on. A reply comes as
// [Event]s, of parts that are of the same kinds. A tool is its [ToolName]; [Recipient] is the name by
// which the model calls it. In which form the model wrote the header of a call stands in the call's
// id, see [FormOf].
//
// The package knows Harmony, and nothing of requests, of stores and of prompts as a whole.
package item

import (
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Overhead is the approximate size of an item without its texts, in bytes.
const Overhead = 128

// Clone returns items with copies of their strings.
func Clone(items []Item) []Item {
	clones := make([]Item, len(items))
	for i, item := range items {
		clones[i] = Item{
			Kind: item.Kind, Text: strings.Clone(item.Text), CallID: strings.Clone(item.CallID),
			Namespace: strings.Clone(item.Namespace), Name: strings.Clone(item.Name), Builtin: item.Builtin,
			Path: strings.Clone(item.Path), Summary: item.Summary, Hosted: item.Hosted, Tools: item.Tools.Clone(),
		}
	}
	return clones
}

// Kind is the kind of an item of a conversation, or of a part of a reply.
type Kind uint8

// The kinds. The parts of a reply are [Reasoning], [Preamble], [Answer] and [Call].
const (
	Instructions Kind = iota + 1 // a system or developer text
	User                         // a user's text
	Reasoning                    // chain of thought: analysis without a recipient
	Preamble                     // text for the user before tool calls: commentary without a recipient
	Answer                       // text for the user: the final channel
	Call                         // a tool call
	Result                       // a tool's output
	Unphased                     // the assistant's text, a Preamble or an Answer depending on what follows
	Tools                        // tools that join the conversation, see [JoinedTools]
)

// String returns the kind's name, for tests and logs.
func (k Kind) String() string {
	return [...]string{
		"none", "instructions", "user", "reasoning", "preamble", "answer", "call", "result", "unphased", "tools",
	}[k]
}

// OfModel reports whether the model has generated such an item.
func (k Kind) OfModel() bool {
	switch k {
	case Reasoning, Preamble, Answer, Call, Unphased:
		return true
	}
	return false
}

// Item is an item of a conversation. The items of a turn of the assistant are in
// the order in which they were generated: reasoning, preamble, calls, results.
type Item struct {
	Kind Kind
	// Of a call its arguments, of a result its output.
	Text string
	// Of calls and results.
	CallID string
	// Of a call; "" is functions.
	Namespace string
	// Of a call, the client's name of the tool; "" if the namespace itself is the tool.
	Name string
	// Of the item in the request, for errors.
	Path string
	// Of a call: the tool belongs to a built-in namespace, see Input.Builtins.
	Builtin bool
	// Of a result: it follows its call directly, also if other calls of the turn follow.
	Hosted bool
	// Of a user's text: it replaces the conversation before it.
	Summary bool
	// Of a Tools item; not nil there.
	Tools *JoinedTools

	// Of what the model has generated: the message as it wrote it. Only Prepare, Extend and
	// Continue set it; nil: the other fields are rendered.
	Written *harmony.Message
}

// Blank reports whether a text is white space alone, which the model is not shown. Of calls and results
// none is: that a tool returned nothing is what it returned.
func (i *Item) Blank() bool {
	switch i.Kind {
	case Call, Result, Tools:
		return false
	}
	return i.Written == nil && strings.TrimSpace(i.Text) == ""
}

// IsAnswer reports whether an item is an answer that the model is shown.
func (i *Item) IsAnswer() bool { return i.Kind == Answer && !i.Blank() }

// AnyAnswer reports whether one of the items is an answer that the model is shown.
func AnyAnswer(items []Item) bool {
	return slices.ContainsFunc(items, func(i Item) bool { return i.IsAnswer() })
}

// Tool returns the tool of a call.
func (i *Item) Tool() ToolName { return ToolName{i.Namespace, i.Name, i.Builtin} }

// FunctionsNamespace is the namespace of plain function tools.
const FunctionsNamespace = "functions"
