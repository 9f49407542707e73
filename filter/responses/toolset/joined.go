package toolset

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Joined is what the items of a conversation say about its tools, beside their
// definitions: those of additional_tools and of the outputs of tool searches.
type Joined struct {
	// What calls become: those of custom tools take text, named are functions of a namespace
	// that the client calls functions.
	custom  map[turn.ToolName]bool
	actions map[turn.ToolName]item.Kind
	named   map[string]bool

	// The search, nil if no item has one; the tools that it can find, and those that it has
	// found.
	search   *hosted.SearchTool
	deferred []hosted.Deferred
	Loaded   map[turn.ToolName]bool
}

// With is the state with that of what follows.
func (s Joined) With(later Joined) Joined {
	next := Joined{
		custom: maps.Clone(s.custom), actions: maps.Clone(s.actions), named: maps.Clone(s.named),
		Loaded: maps.Clone(s.Loaded),
		search: s.search, deferred: s.deferred,
	}
	next.Add(later, &Index{})
	return next
}

// Add adds the state of what follows. The maps must be the state's own.
func (s *Joined) Add(later Joined, index *Index) {
	s.custom = addedTo(s.custom, later.custom)
	s.actions = addedTo(s.actions, later.actions)
	s.named = addedTo(s.named, later.named)
	s.Loaded = addedTo(s.Loaded, later.Loaded)
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

// Index has the indexes of deferred tools in a list. The zero value is that of
// a list that it has not seen.
type Index struct{ at map[turn.ToolName]int }

// add returns a list with more tools, which replace those of the same names. The first
// list that an index gets is copied; later ones must be what it has returned.
func (x *Index) add(list, more []hosted.Deferred) []hosted.Deferred {
	// The first list may be that of a remembered chain, which others read.
	if x.at == nil {
		x.at = make(map[turn.ToolName]int, len(list)+len(more))
		list = slices.Clone(list)
		for i := range list {
			x.at[list[i].Name()] = i
		}
	}

	for i := range more {
		name := more[i].Name()
		if k, ok := x.at[name]; ok {
			list[k] = more[i]
			continue
		}
		x.at[name] = len(list)
		list = append(list, more[i])
	}

	return list
}

// Most is the size of the largest of the lists of tools.
func (s *Joined) Most() int {
	return max(len(s.custom), len(s.named), len(s.Loaded), len(s.deferred))
}

// Bytes is roughly how much memory the state takes.
func (s *Joined) Bytes() int64 {
	const overhead = 64
	n := int64(0)
	for _, names := range []map[turn.ToolName]bool{s.custom, s.Loaded} {
		for name := range names {
			n += int64(len(name.Namespace)+len(name.Name)) + overhead
		}
	}

	for name := range s.actions {
		n += int64(len(name.Namespace)+len(name.Name)) + overhead
	}

	for name := range s.named {
		n += int64(len(name)) + overhead
	}

	if s.search != nil {
		n += int64(len(s.search.Description)+len(s.search.Parameters)) + overhead
	}

	for i := range s.deferred {
		d := &s.deferred[i]
		names := len(d.Namespace) + len(d.About) + len(d.Tool.Name)
		texts := len(d.Tool.Description) + len(d.Tool.Parameters) + len(d.Shown)
		n += int64(names+texts) + 2*overhead
	}

	return n
}

// NewReader begins to read the tools of a request.
func NewReader(
	config hosted.Config, rc *turn.RequestContext, input *turn.Input, echo *Echo, ignored *jsontext.Ignored,
) *Reader {
	return &Reader{
		rc: rc, input: input, echo: echo, ignored: ignored, offer: hosted.NewOffer(&api, config, rc),
		custom: map[turn.ToolName]bool{}, actions: map[turn.ToolName]item.Kind{}, named: map[string]bool{},
	}
}

// Reuse makes the reader one for the tools of the next item. What it has read must have
// been copied, or taken out.
func (r *Reader) Reuse(ignored *jsontext.Ignored, earlierHosted []*hosted.Server, earlier bool) {
	// The maps are used again: a request may have thousands of items that bring tools.
	clear(r.custom)
	clear(r.named)
	clear(r.actions)
	*r.input = turn.Input{}
	offer := r.offer
	offer.Servers, offer.Searches, offer.Deferred = earlierHosted, nil, nil
	*r = Reader{
		rc: r.rc, input: r.input, ignored: ignored,
		custom: r.custom, named: r.named, actions: r.actions,
		offer: offer, others: len(earlierHosted), earlier: earlier,
	}
}

// ReadFound reads the tools of the output of a tool search.
func (r *Reader) ReadFound(it item.Item) (*turn.JoinedTools, Joined, *apierror.Error) {
	// A search finds what it finds: nothing of it is deferred again, and a server in its output has
	// no effect.
	r.found, r.earlier = true, true
	joined, state, err := r.ReadJoined(it)
	if err != nil {
		return nil, state, err
	}
	state.search, state.deferred = nil, nil
	state.Loaded = namesOf(joined.Namespaces)
	return joined, state, nil
}

// ReadJoined reads the tools of an item, and what has to be known of them beside their
// definitions. The maps of that are the reader's.
func (r *Reader) ReadJoined(it item.Item) (*turn.JoinedTools, Joined, *apierror.Error) {
	list := jsontext.Field{Result: it.At.Get("tools"), Path: it.At.Path + ".tools"}
	if !list.IsArray() {
		return nil, Joined{}, apierror.Invalid(list.Path, "The field %q must be a list of tools.", list.Path)
	}
	if err := r.ReadTools(list); err != nil {
		return nil, Joined{}, err
	}

	joined := &turn.JoinedTools{Strict: r.input.Strict}
	for _, space := range r.input.Tools {
		// The namespace of plain functions is always there, also empty.
		if len(space.Tools) > 0 {
			joined.Namespaces = append(joined.Namespaces, space)
		}
	}

	state := Joined{custom: r.custom, actions: r.actions, named: r.named, deferred: r.offer.Deferred}
	if len(r.offer.Searches) > 0 {
		state.search = &r.offer.Searches[0]
	}
	return joined, state, nil
}

// namesOf returns the names of tools.
func namesOf(spaces []harmony.Namespace) map[turn.ToolName]bool {
	names := map[turn.ToolName]bool{}
	for i := range spaces {
		for _, t := range spaces[i].Tools {
			names[turn.ToolName{Namespace: strings.Clone(spaces[i].Name), Name: strings.Clone(t.Name)}] = true
		}
	}
	return names
}

// Join adds what the conversation says about tools to those of the request, and the
// servers of additional_tools.
func (r *Reader) Join(joined *Joined, added []*hosted.Server) *apierror.Error {
	maps.Copy(r.custom, joined.custom)
	maps.Copy(r.actions, joined.actions)
	maps.Copy(r.named, joined.named)
	// Two tools of one name would be one to the model, and their calls could not be told apart.
	o := &r.offer
	for _, s := range added {
		if o.Same(s) != nil {
			return apierror.Invalid("input",
				"The tool or server %q is among the tools of the request and in additional_tools. Send it once.",
				item.Clip(s.Label))
		}
	}

	o.Servers = append(o.Servers, added...)
	// The request's own search counts more than one of an earlier item.
	if len(o.Searches) == 0 && joined.search != nil {
		o.Searches = []hosted.SearchTool{*joined.search}
	}

	o.Deferred = append(o.Deferred, joined.deferred...)
	// tool_choice can name a tool that only the items have.
	r.loadChosen()
	r.input.Deferred = hosted.Spaces(o.Deferred)
	return nil
}
