package prompt

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Conversation is the conversation of a request before it is rendered: what its prefix has, and the items
// after it.
type Conversation struct {
	// As it is rendered.
	Input *request.Input

	before *Prefix
	// After before, with all phases decided, and each result after its call.
	items []item.Item
	start conversationStart
}

// New returns the conversation of a request. The error is a 400 that names the field at fault.
func New(rc *request.Context, in *request.Input) (Conversation, *apierror.Error) {
	in, err := withOwnHistory(in, rc.Model)
	if err != nil {
		return Conversation{}, err
	}
	before := prefixOf(in)
	if before == nil {
		before = &Prefix{}
	}
	if rc.Model.Canonical {
		in = withSortedSchemas(&rc.Limits, in)
	}

	// Checked before anything is computed of them: what follows takes the calls' results for granted.
	items := before.followed(in.Items)
	if err := validate(rc, in, before, items); err != nil {
		return Conversation{}, err
	}

	return Conversation{in, before, items, newConversationStart(in, before, items)}, nil
}

// Len returns how many messages, calls and results the conversation has.
func (c *Conversation) Len() int { return c.before.settled + len(c.items) }

// JoinedTools returns the tools that have joined, those of the prefix first.
func (c *Conversation) JoinedTools() []*item.JoinedTools { return joinedIn(c.before.joined, c.items) }

// Key identifies how the conversation starts, and the model.
func (c *Conversation) Key(model string) string { return c.start.key(model) }

// FirstText identifies the first user's text; nothing if there is none.
func (c *Conversation) FirstText() []byte { return c.start.firstText() }

// LastUserText returns the beginning of the last user's text, see [request.Limits].
func (c *Conversation) LastUserText(rc *request.Context) string {
	return lastUserText(rc, c.before.lastUserText, c.items)
}

// withOwnHistory returns the input with its items in the place of a prefix that has the model's
// steps in another form than the model's prompts have them.
func withOwnHistory(in *request.Input, m *request.Model) (*request.Input, *apierror.Error) {
	if !prefixOf(in).otherHistory(m) {
		return in, nil
	}

	all, err := in.Whole()
	if err != nil {
		return nil, err
	}
	own := *in
	own.Before, own.Items = nil, slices.Concat(all, in.Items)
	return &own, nil
}

// validate rejects conversations that are invalid in all APIs.
func validate(rc *request.Context, in *request.Input, before *Prefix, items []item.Item) *apierror.Error {
	if before.settled+len(items) > rc.Limits.Items {
		return apierror.Invalid("", "The conversation has more than %d messages, calls and results.", rc.Limits.Items)
	}

	if in.Continue {
		last := item.Item{}
		if len(items) > 0 {
			last = items[len(items)-1]
		}
		if last.Kind != item.Answer && last.Kind != item.Preamble && last.Kind != item.Reasoning {
			return apierror.Invalid("continue_final_message",
				"Only a last message with the assistant's text can be continued.")
		}
	}

	pairs, err := before.openAfter(items)
	if err != nil {
		return err
	}
	return pairs.broken(true, in.ShownID)
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

// withSortedSchemas returns an input with the members of its tools' schemas sorted. Schemas that
// are refused later stay as they are.
func withSortedSchemas(l *request.Limits, in *request.Input) *request.Input {
	sorted := *in
	sorted.Tools = slices.Clone(in.Tools)

	for i := range sorted.Tools {
		ns := &sorted.Tools[i]
		ns.Tools = slices.Clone(ns.Tools)
		for k := range ns.Tools {
			// Sorting recurses, so that a schema is looked at before: one that is too deep is
			// refused later, in the client's own words. Any name does here.
			t := &ns.Tools[k]
			fits := l.CheckTool(harmony.Tool{Name: "t", Parameters: t.Parameters}) == nil
			if len(t.Parameters) > 0 && fits {
				t.Parameters = jsontext.AppendSorted(make([]byte, 0, len(t.Parameters)), string(t.Parameters))
			}
		}
	}
	return &sorted
}
