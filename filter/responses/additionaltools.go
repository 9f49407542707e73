package responses

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// joinedState is what the items of a conversation say about its tools, beside their
// definitions: those of additional_tools and of the outputs of tool searches.
type joinedState struct {
	custom   map[toolName]bool // tools that take text
	actions  map[toolName]item.Kind
	named    map[string]bool   // functions of a namespace that the client calls functions
	loaded   map[toolName]bool // tools that a search has found
	search   *toolSearch       // nil: no item has a tool search
	deferred []deferredTool
}

// with is the state with that of what follows.
func (s joinedState) with(later joinedState) joinedState {
	next := joinedState{
		custom: maps.Clone(s.custom), actions: maps.Clone(s.actions), named: maps.Clone(s.named), loaded: maps.Clone(s.loaded),
		search: s.search, deferred: s.deferred,
	}
	next.add(later, &deferredIndex{})
	return next
}

// add adds the state of what follows. The maps must be the state's own.
func (s *joinedState) add(later joinedState, index *deferredIndex) {
	s.custom = addedTo(s.custom, later.custom)
	s.actions = addedTo(s.actions, later.actions)
	s.named = addedTo(s.named, later.named)
	s.loaded = addedTo(s.loaded, later.loaded)
	s.search = cmp.Or(later.search, s.search)
	if len(later.deferred) > 0 {
		s.deferred = index.add(s.deferred, later.deferred)
	}
}

// addedTo returns a map with more entries: the map itself, or a new one for nil.
func addedTo[K comparable, V any](to, more map[K]V) map[K]V {
	if to == nil && len(more) > 0 {
		to = make(map[K]V, len(more))
	}
	maps.Copy(to, more)
	return to
}

// deferredIndex has the indexes of deferred tools in a list. The zero value is that of
// a list that it has not seen.
type deferredIndex struct{ at map[toolName]int }

// add returns a list with more tools, which replace those of the same names. The first
// list that an index gets is copied; later ones must be what it has returned.
func (x *deferredIndex) add(list, more []deferredTool) []deferredTool {
	if x.at == nil {
		x.at = make(map[toolName]int, len(list)+len(more))
		list = slices.Clone(list)
		for i := range list {
			x.at[toolName{list[i].namespace, list[i].tool.Name}] = i
		}
	}
	for i := range more {
		name := toolName{more[i].namespace, more[i].tool.Name}
		if k, ok := x.at[name]; ok {
			list[k] = more[i]
			continue
		}
		x.at[name] = len(list)
		list = append(list, more[i])
	}
	return list
}

// bytes is roughly how much memory the state takes.
func (s *joinedState) bytes() int64 {
	const overhead = 64
	n := int64(0)
	for _, names := range []map[toolName]bool{s.custom, s.loaded} {
		for name := range names {
			n += int64(len(name.namespace)+len(name.name)) + overhead
		}
	}
	for name := range s.actions {
		n += int64(len(name.namespace)+len(name.name)) + overhead
	}
	for name := range s.named {
		n += int64(len(name)) + overhead
	}
	if s.search != nil {
		n += int64(len(s.search.description)+len(s.search.parameters)) + overhead
	}
	for i := range s.deferred {
		d := &s.deferred[i]
		n += int64(len(d.namespace)+len(d.description)+len(d.tool.Name)+len(d.tool.Description)+len(d.tool.Parameters)+len(d.definition)) + 2*overhead
	}
	return n
}

// toolItems reads the items that bring tools: additional_tools, and searches for tools
// with their outputs.
type toolItems struct {
	hosted    []*hostedServer // of additional_tools of the request's own input
	searching string          // the call id of the last tool search
	index     deferredIndex
	reader    *toolReader // of the tools of an item; nil: none has any yet
}

// addTools adds tools that are available from an item on.
func (t *toolItems) addTools(r *itemReader, it item.Item) *apierror.Error {
	if it.Role != "" && it.Role != "developer" {
		return apierror.Invalid(it.At.Path+".role", "The role of additional_tools must be developer.")
	}
	reader := t.newReader(r, t.hosted)
	joined, err := reader.readJoined(it)
	if err != nil {
		return err
	}
	state := reader.joinedState()
	state.search, state.deferred = reader.search, reader.deferred
	t.hosted = reader.hosted
	if err := t.note(r, state); err != nil {
		return err
	}
	r.addTurn(joinedItems(joined, it.At.Path)...)
	return nil
}

// note notes the state of an item. What cannot be offered together is refused here,
// before it is copied and rendered.
func (t *toolItems) note(r *itemReader, state joinedState) *apierror.Error {
	joined, most := &r.state.joined, r.rc.Limits.Tools
	joined.add(state, &t.index)
	if max(len(joined.custom), len(joined.named), len(joined.loaded), len(joined.deferred), len(t.hosted)) > most {
		return apierror.Invalid("input", "The conversation has more than %d tools. Leave tools out of additional_tools, or of the outputs of tool searches.", most)
	}
	return nil
}

// newReader returns a reader for the tools of an item, with the hosted tools of earlier
// items. Servers and built-in tools are those of a request: in items of earlier requests
// they have no effect. The reader is the same for every item, because a request may have
// thousands: what it has read must be copied, or taken out, before the next.
func (t *toolItems) newReader(r *itemReader, earlierHosted []*hostedServer) *toolReader {
	ignored := r.ignored
	if ignored == nil {
		ignored = &jsontext.Ignored{}
	}
	if t.reader == nil {
		t.reader = &toolReader{input: &turn.Input{}, custom: map[toolName]bool{}, named: map[string]bool{}, actions: map[toolName]item.Kind{}}
	}
	last := t.reader
	clear(last.custom)
	clear(last.named)
	clear(last.actions)
	*last.input = turn.Input{}
	*last = toolReader{
		api: r.api, rc: r.rc, input: last.input, ignored: ignored,
		custom: last.custom, named: last.named, actions: last.actions, hosted: earlierHosted, others: len(earlierHosted), earlier: !r.ownInput,
	}
	return last
}

// readJoined reads the tools of an item.
func (r *toolReader) readJoined(it item.Item) (*turn.JoinedTools, *apierror.Error) {
	list := jsontext.Field{Result: it.At.Get("tools"), Path: it.At.Path + ".tools"}
	if !list.IsArray() {
		return nil, apierror.Invalid(list.Path, "The field %q must be a list of tools.", list.Path)
	}
	if err := r.readTools(list); err != nil {
		return nil, err
	}
	joined := &turn.JoinedTools{Strict: r.input.Strict}
	for _, space := range r.input.Tools {
		if len(space.Tools) > 0 {
			joined.Namespaces = append(joined.Namespaces, space)
		}
	}
	return joined, nil
}

// joinedState is what has to be known of the tools beside their definitions. Its maps
// are the reader's.
func (r *toolReader) joinedState() joinedState {
	return joinedState{custom: r.custom, actions: r.actions, named: r.named}
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
	arguments, err := turn.ReadArguments(it.Arguments)
	if err != nil {
		return err
	}
	if it.CallID == "" {
		if it.ID == "" {
			return apierror.Invalid(it.At.Path+".call_id", "A tool search has neither a call_id nor an id.")
		}
		it.CallID = item.CallPrefix + strings.TrimPrefix(it.ID, item.ToolSearch.Names().Prefix) // under which its reasoning is kept
	}
	t.searching = strings.Clone(it.CallID)
	r.addTurn(turn.Item{Kind: turn.Call, Text: arguments, CallID: it.CallID, Name: searchTool, Path: it.At.Path})
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
		return apierror.Invalid(it.At.Path+".call_id", "The output of a tool search has no call_id, and there is no search before it.")
	}
	reader := t.newReader(r, nil)
	reader.found, reader.earlier = true, true
	joined, err := reader.readJoined(it)
	if err != nil {
		return err
	}
	state := reader.joinedState()
	state.loaded = namesOf(joined.Namespaces)
	if err := t.note(r, state); err != nil {
		return err
	}
	r.addTurn(turn.Item{Kind: turn.Result, Text: foundText(joined.Namespaces), CallID: it.CallID, Hosted: own, Path: it.At.Path})
	r.addTurn(joinedItems(joined, it.At.Path)...)
	return nil
}

// namesOf returns the names of tools.
func namesOf(spaces []harmony.Namespace) map[toolName]bool {
	names := map[toolName]bool{}
	for i := range spaces {
		for _, t := range spaces[i].Tools {
			names[toolName{strings.Clone(spaces[i].Name), strings.Clone(t.Name)}] = true
		}
	}
	return names
}

// joinTools adds what the conversation says about tools to those of the request.
func (d *decoder) joinTools() *apierror.Error {
	joined, tools := &d.items.state.joined, &d.tools
	maps.Copy(tools.custom, joined.custom)
	maps.Copy(tools.actions, joined.actions)
	maps.Copy(tools.named, joined.named)
	for _, h := range d.items.tools.hosted {
		for _, other := range tools.hosted {
			if h.Label == other.Label && h.Builtin == other.Builtin {
				return apierror.Invalid("input", "The tool or server %q is among the tools of the request and in additional_tools. Send it once.", item.Clip(h.Label))
			}
		}
	}
	tools.hosted = append(tools.hosted, d.items.tools.hosted...)
	if tools.search == nil {
		tools.search = joined.search
	}
	tools.deferred = append(tools.deferred, joined.deferred...)
	tools.loadChosen()
	d.fields.input.Deferred = namespacesOf(tools.deferred)
	return nil
}
