package prompt

import (
	"cmp"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Sums returns the sums of what the prompt begins with, but for the model and the salt.
func (c *Conversation) Sums(p *Prompt) diagnosis.Head {
	opening := c.before.first
	if c.before.settled == 0 {
		opening, _ = cutOpening(c.items)
	}
	sums := p.head.sums(opening)
	sums.Stored, sums.Truncated = p.stored, p.truncated

	// A prefix may have a summary, and the items after it a later one.
	sums.First, sums.Summary = diagnosis.Text(c.FirstText()), c.before.summary
	for i := range c.items {
		if c.items[i].Summary {
			sums.Summary = diagnosis.Text(c.items[i].Text)
		}
	}
	return sums
}

// sums returns the sums of a head, with what the conversation begins with.
func (h *head) sums(opening opening) diagnosis.Head {
	system := h.system.Content[0].(*harmony.SystemContent)
	var builtins, sums diagnosis.Head
	builtins.AddTools(system.Tools)
	sums.Builtins = builtins.Tools

	sums.Date, sums.Effort = diagnosis.Text(system.StartDate), diagnosis.Text(string(system.Effort))
	sums.Instructions = diagnosis.Text(cmp.Or(h.instructions, opening.instructions))
	if h.instructions != "" && opening.instructions != "" {
		sums.Instructions = sums.Instructions.With(opening.instructions)
	}

	sums.AddTools(h.tools)
	if h.offered {
		sums.AddTools(opening.tools)
	}
	for i := range h.formats {
		sums.Format = sums.Format.With(h.formats[i].Name).With(string(h.formats[i].Schema))
	}
	return sums
}

// storedLast reports whether the last call of the items is one of a choice that is kept.
func storedLast(items []item.Item, stored []kept.Choice) bool {
	for i := len(items) - 1; i >= 0 && len(stored) > 0; i-- {
		if id := items[i].CallID; items[i].Kind == item.Call {
			return slices.ContainsFunc(stored, func(c kept.Choice) bool { return c.Has(id) })
		}
	}
	return false
}

// firstText identifies the first user's text of a conversation; nothing if it has none.
func (s conversationStart) firstText() []byte {
	if !s.user {
		return nil
	}
	return s.sums[len(s.sums)-sumBytes:]
}
