package fields

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

// The marks around the reasoning that other servers leave in an assistant's text.
const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
)

// maxStep bounds how many items [AppendAssistant] looks back at.
const maxStep = 64

// AppendAssistant appends the text of an assistant's message in the history: an
// answer, a preamble or a text without a phase. A block <think>…</think> at its
// start becomes a reasoning item before it. The block is dropped if the
// assistant's step has reasoning already: clients that keep reasoning in the text
// often send it in its field too. An empty text is not appended.
func AppendAssistant(items []item.Item, it item.Item) []item.Item {
	if thought, rest, ok := cutThink(it.Text); ok {
		it.Text = rest
		if thought != "" && !stepReasoned(items) {
			items = append(items, item.Item{Kind: item.Reasoning, Text: thought, Path: it.Path})
		}
	}

	if it.Text == "" {
		return items
	}
	return append(items, it)
}

// cutThink splits a text after the block that it begins with, if it begins with one.
func cutThink(text string) (thought, rest string, ok bool) {
	rest, ok = strings.CutPrefix(strings.TrimSpace(text), thinkBegin)
	if !ok {
		return "", text, false
	}

	thought, _, ok = strings.Cut(rest, thinkEnd)
	if !ok {
		return "", text, false
	}

	// The text after the block keeps what white space it has at its end.
	_, rest, _ = strings.Cut(text, thinkEnd)
	return strings.TrimSpace(thought), strings.TrimLeft(rest, " \t\r\n"), true
}

// stepReasoned reports whether the assistant's step at the end of the items has
// reasoning.
func stepReasoned(items []item.Item) bool {
	for i := len(items) - 1; i >= max(0, len(items)-maxStep); i-- {
		switch items[i].Kind {
		case item.Reasoning:
			return true
		case item.User, item.Result, item.Instructions, item.Answer:
			return false
		}
	}
	return false
}
