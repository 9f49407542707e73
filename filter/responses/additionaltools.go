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

// most is the size of the largest of the lists of tools.
func (s *joinedState) most() int {
	return max(len(s.custom), len(s.named), len(s.loaded), len(s.deferred))
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
	joined, state, err := reader.readJoined(it)
	if err != nil {
		return err
	}
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
	if max(joined.most(), len(t.hosted)) > most {
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
		t.reader = newToolReader(&r.reader.Tools, r.rc, &turn.Input{}, nil, ignored)
	}
	t.reader.reuse(ignored, earlierHosted, !r.ownInput)
	return t.reader
}

// newToolReader begins to read the tools of a request.
func newToolReader(config *toolConfig, rc *turn.RequestContext, input *turn.Input, echo *toolEcho, ignored *jsontext.Ignored) *toolReader {
	return &toolReader{
		config: config, rc: rc, input: input, echo: echo, ignored: ignored,
		custom: map[toolName]bool{}, actions: map[toolName]item.Kind{}, named: map[string]bool{},
	}
}

// reuse makes the reader one for the tools of the next item. What it has read must have
// been copied, or taken out.
func (r *toolReader) reuse(ignored *jsontext.Ignored, earlierHosted []*hostedServer, earlier bool) {
	clear(r.custom)
	clear(r.named)
	clear(r.actions)
	*r.input = turn.Input{}
	*r = toolReader{
		config: r.config, rc: r.rc, input: r.input, ignored: ignored,
		custom: r.custom, named: r.named, actions: r.actions, hosted: earlierHosted, others: len(earlierHosted), earlier: earlier,
	}
}

// readFound reads the tools of the output of a tool search.
func (r *toolReader) readFound(it item.Item) (*turn.JoinedTools, joinedState, *apierror.Error) {
	r.found, r.earlier = true, true
	joined, state, err := r.readJoined(it)
	if err != nil {
		return nil, state, err
	}
	state.search, state.deferred = nil, nil
	state.loaded = namesOf(joined.Namespaces)
	return joined, state, nil
}

// readJoined reads the tools of an item, and what has to be known of them beside their
// definitions. The maps of that are the reader's.
func (r *toolReader) readJoined(it item.Item) (*turn.JoinedTools, joinedState, *apierror.Error) {
	list := jsontext.Field{Result: it.At.Get("tools"), Path: it.At.Path + ".tools"}
	if !list.IsArray() {
		return nil, joinedState{}, apierror.Invalid(list.Path, "The field %q must be a list of tools.", list.Path)
	}
	if err := r.readTools(list); err != nil {
		return nil, joinedState{}, err
	}
	joined := &turn.JoinedTools{Strict: r.input.Strict}
	for _, space := range r.input.Tools {
		if len(space.Tools) > 0 {
			joined.Namespaces = append(joined.Namespaces, space)
		}
	}
	return joined, joinedState{custom: r.custom, actions: r.actions, named: r.named, search: r.search, deferred: r.deferred}, nil
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
	joined, state, err := t.newReader(r, nil).readFound(it)
	if err != nil {
		return err
	}
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

// join adds what the conversation says about tools to those of the request, and the
// servers of additional_tools.
func (r *toolReader) join(joined *joinedState, added []*hostedServer) *apierror.Error {
	maps.Copy(r.custom, joined.custom)
	maps.Copy(r.actions, joined.actions)
	maps.Copy(r.named, joined.named)
	for _, h := range added {
		for _, other := range r.hosted {
			if h.Label == other.Label && h.Builtin == other.Builtin {
				return apierror.Invalid("input", "The tool or server %q is among the tools of the request and in additional_tools. Send it once.", item.Clip(h.Label))
			}
		}
	}
	r.hosted = append(r.hosted, added...)
	if r.search == nil {
		r.search = joined.search
	}
	r.deferred = append(r.deferred, joined.deferred...)
	r.loadChosen()
	r.input.Deferred = namespacesOf(r.deferred)
	return nil
}
