package read

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// toolItems reads the items that bring tools: additional_tools, and searches for tools
// with their outputs.
type toolItems struct {
	hosted    []*hosted.Server // of additional_tools of the request's own input
	searching string           // the call id of the last tool search
	index     toolset.Index
	reader    *toolset.Reader // of the tools of an item; nil: none has any yet
}

// addTools adds tools that are available from an item on.
func (t *toolItems) addTools(r *itemReader, it item.Item) *apierror.Error {
	if it.Role != "" && it.Role != "developer" {
		return apierror.Invalid(it.At.Path+".role", "The role of additional_tools must be developer.")
	}

	reader := t.newReader(r, t.hosted)
	joined, state, err := reader.ReadJoined(it)
	if err != nil {
		return err
	}

	t.hosted = reader.Servers()
	if err := t.note(r, state); err != nil {
		return err
	}

	r.addTurn(joinedItems(joined, it.At.Path)...)

	return nil
}

// note notes the state of an item. What cannot be offered together is refused here,
// before it is copied and rendered.
func (t *toolItems) note(r *itemReader, state toolset.Joined) *apierror.Error {
	joined, most := &r.state.joined, r.rc.Limits.Tools
	joined.Add(state, &t.index)
	if max(joined.Most(), len(t.hosted)) > most {
		return apierror.Invalid("input",
			"The conversation has more than %d tools. Leave tools out of additional_tools, or of the outputs of "+
				"tool searches.", most)
	}
	return nil
}

// newReader returns a reader for the tools of an item, with the hosted tools of earlier
// items. Servers and built-in tools are those of a request: in items of earlier requests
// they have no effect. The reader is the same for every item, because a request may have
// thousands: what it has read must be copied, or taken out, before the next.
func (t *toolItems) newReader(r *itemReader, earlierHosted []*hosted.Server) *toolset.Reader {
	ignored := r.ignored
	if ignored == nil {
		ignored = &jsontext.Ignored{}
	}
	if t.reader == nil {
		t.reader = toolset.NewReader(r.reader.Tools, r.rc, &turn.Input{}, nil, ignored)
	}
	t.reader.Reuse(ignored, earlierHosted, !r.ownInput)
	return t.reader
}

// joinedItems is the item of tools, unless there are none.
func joinedItems(joined *turn.JoinedTools, path string) []turn.Item {
	if len(joined.Namespaces) == 0 {
		return nil
	}
	return []turn.Item{{Kind: turn.Tools, Tools: joined, Path: path}}
}

// addSearch adds a call of the tool search. One that this service has run may have
// no call_id.
func (t *toolItems) addSearch(r *itemReader, it item.Item) *apierror.Error {
	arguments, err := fields.ReadArguments(it.Arguments)
	if err != nil {
		return err
	}

	if it.CallID == "" {
		if it.ID == "" {
			return apierror.Invalid(it.At.Path+".call_id", "A tool search has neither a call_id nor an id.")
		}
		// Under which its reasoning is kept.
		it.CallID = item.CallPrefix + strings.TrimPrefix(it.ID, item.ToolSearch.Names().Prefix)
	}

	t.searching = strings.Clone(it.CallID)
	r.addTurn(turn.Item{
		Kind:   turn.Call,
		Text:   arguments,
		CallID: it.CallID,
		Name:   toolset.SearchName,
		Path:   it.At.Path,
	})

	return nil
}

// addFound adds the output of a tool search. The tools in it join the prompt
// there. Without a call_id it belongs to the search before it.
func (t *toolItems) addFound(r *itemReader, it item.Item) *apierror.Error {
	own := it.CallID == ""
	if own {
		it.CallID = t.searching
	}

	if it.CallID == "" {
		return apierror.Invalid(it.At.Path+".call_id",
			"The output of a tool search has no call_id, and there is no search before it.")
	}

	joined, state, err := t.newReader(r, nil).ReadFound(it)
	if err != nil {
		return err
	}
	if err := t.note(r, state); err != nil {
		return err
	}

	r.addTurn(turn.Item{
		Kind:   turn.Result,
		Text:   hosted.FoundText(joined.Namespaces),
		CallID: it.CallID,
		Hosted: own,
		Path:   it.At.Path,
	})
	r.addTurn(joinedItems(joined, it.At.Path)...)

	return nil
}
