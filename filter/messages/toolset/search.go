package toolset

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// With a tool of the type tool_search_tool_bm25 or tool_search_tool_regex, this service
// searches for deferred tools, as package hosted says: clients see a server_tool_use and its
// tool_search_tool_result. Without one the client searches itself, by a tool of its own whose
// results have references.

// Search is what the reply needs of a request's searches for tools.
type Search struct {
	names    []string // of the searches
	deferred []Deferred
	loaded   map[turn.ToolName]bool // the tools that the model has already
}

// Deferred is a tool that a search finds: one of the client, or of an MCP server.
type Deferred struct {
	hosted.Deferred

	// Shown is the name by which clients know it.
	Shown string
}

func (t *Deferred) key() turn.ToolName {
	return turn.ToolName{Namespace: t.Namespace, Name: t.Tool.Name}
}

// readSearch reads a tool that searches for tools.
func (r *Reader) readSearch(kind, name string, v jsontext.Field) *apierror.Error {
	// What is found has to join the same reply, which has one model call here.
	if r.config.Client == nil {
		names.IgnoreKind(r.ignored, "tools.", kind)
		r.noteAbsent(v.Result)
		r.unsearchable = true
		return nil
	}
	if slices.Contains(r.searches, name) {
		return apierror.Invalid(v.Path, "The tool %q is twice among the tools. Send it once.", name)
	}
	r.searches = append(r.searches, name)

	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		// A search that is deferred itself could never be found.
		case "type", "name", "cache_control", "defer_loading", "strict":
		case "allowed_callers":
			return ToolFields.Other(key, v, r.ignored)
		default:
			r.ignored.Add(v.Path)
		}
		return nil
	})
}

// offerUnsearchable offers deferred tools at once where nothing can search for them.
func (r *Reader) offerUnsearchable() {
	if len(r.searches) > 0 {
		return
	}

	// A client searches for its own tools, unless it has meant the filter to do it.
	if r.unsearchable && len(r.deferred) > 0 {
		for _, name := range r.deferredNames {
			r.offerDeferred(name)
		}
		r.ignored.Add("tools.defer_loading")
	}
	// It does not have the tools that servers list, and so cannot search for them.
	if slices.ContainsFunc(r.served.toolsets, func(t mcpToolset) bool { return t.defersAny() }) {
		r.ignored.Add("tools.defer_loading")
	}
}

// deferServed finds the tools of servers that only a search offers.
func (r *Reader) deferServed() {
	if len(r.searches) == 0 {
		return
	}
	for _, s := range r.served.servers {
		set := r.served.toolsetOf(s.Label)
		if set == nil || s.Builtin != nil {
			continue
		}
		space := s.Offered()
		for i, t := range s.Tools {
			// What has to be called must be known to the model at once.
			if !set.defers(t.Name) || t.Name == r.chosen {
				continue
			}
			r.served.later = append(r.served.later, Deferred{
				Deferred: hosted.Deferred{Namespace: space.Name, About: space.Description, Tool: space.Tools[i]},
				Shown:    t.Name,
			})
		}
	}
}

// offerSearches offers the searches, once all tools are known, and lets the model call what
// they find.
func (r *Reader) offerSearches() {
	if len(r.searches) == 0 {
		return
	}

	// What has to be called must be known to the model at once.
	r.offerDeferred(r.chosen)
	var about hosted.SearchDescription
	deferred := r.allDeferred()
	for _, t := range deferred {
		name := t.Tool.Name
		switch own := t.Namespace == turn.FunctionsNamespace; {
		case !own:
			name = turn.ModelName(t.Namespace) + "." + turn.ModelName(name)
		case r.strict[name]:
			enforce(r.input, name)
		}
		about.Add(name, t.Tool.Description)
	}
	r.input.Deferred = Spaces(deferred)

	for _, name := range r.searches {
		parameters := hosted.SearchParameters
		if name == names.SearchByPattern {
			parameters = hosted.PatternParameters
		}
		r.tools = append(r.tools, harmony.Tool{
			Name: name, Description: about.String(), Parameters: json.RawMessage(parameters),
		})
	}
}

// offerDeferred offers a deferred tool from the beginning.
func (r *Reader) offerDeferred(name string) {
	t, ok := r.deferred[name]
	if !ok {
		return
	}
	r.tools = append(r.tools, t)
	if r.strict[name] {
		enforce(r.input, name)
	}
	// A reference to it adds nothing any more.
	delete(r.deferred, name)
	r.deferredNames = slices.DeleteFunc(slices.Clone(r.deferredNames), func(n string) bool { return n == name })
}

// allDeferred returns the deferred tools: the client's, and those of servers after them.
func (r *Reader) allDeferred() []*Deferred {
	all := make([]*Deferred, 0, len(r.deferredNames)+len(r.served.later))
	for _, name := range r.deferredNames {
		own := hosted.Deferred{Namespace: turn.FunctionsNamespace, Tool: r.deferred[name]}
		all = append(all, &Deferred{own, name})
	}
	for i := range r.served.later {
		all = append(all, &r.served.later[i])
	}
	return all
}

// Spaces returns the namespaces of deferred tools, in the order of their first tools.
func Spaces(list []*Deferred) (spaces []harmony.Namespace) {
	at := map[string]int{}
	for _, t := range list {
		i, ok := at[t.Namespace]
		if !ok {
			i = len(spaces)
			at[t.Namespace] = i
			spaces = append(spaces, harmony.Namespace{Name: t.Namespace, Description: t.About})
		}
		spaces[i].Tools = append(spaces[i].Tools, t.Tool)
	}
	return spaces
}

// search returns what the reply needs of the searches; nil if there are none.
func (r *Reader) search() *Search {
	if len(r.searches) == 0 {
		return nil
	}

	s := &Search{names: r.searches, loaded: map[turn.ToolName]bool{}}
	for _, t := range r.allDeferred() {
		kept := *t
		// The reply outlives the body, of which the client's definitions are a part.
		if kept.Namespace == turn.FunctionsNamespace {
			kept.Shown = strings.Clone(t.Shown)
			kept.Tool = harmony.Tool{
				Name: kept.Shown, Description: strings.Clone(t.Tool.Description),
				Parameters: slices.Clone(t.Tool.Parameters),
			}
		}
		s.deferred = append(s.deferred, kept)
		// The model has what the conversation has found.
		if r.referred[t.Shown] {
			s.loaded[kept.key()] = true
		}
	}
	return s
}

// bytes is about how much memory the definitions take; 0 for nil.
func (s *Search) bytes() int {
	if s == nil {
		return 0
	}

	n := 0
	for i := range s.deferred {
		t := &s.deferred[i].Tool
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}

// Has reports whether a call is one of a search; nil has none.
func (s *Search) Has(call *turn.CalledTool) bool {
	return s != nil && call.Namespace == turn.FunctionsNamespace && slices.Contains(s.names, call.Name)
}

// Find runs a search, with spend for its steps of work. The model has what it finds from now on.
func (s *Search) Find(spend func(steps int) error, name, arguments string) ([]*Deferred, error) {
	var left []*Deferred
	var candidates []*hosted.Deferred
	for i := range s.deferred {
		if t := &s.deferred[i]; !s.loaded[t.key()] {
			left, candidates = append(left, t), append(candidates, &t.Deferred)
		}
	}

	var best []int
	var err error
	if name == names.SearchByPattern {
		best, err = hosted.MatchDeferred(spend, candidates, arguments)
	} else {
		best, err = hosted.SearchDeferred(spend, candidates, arguments)
	}

	found := make([]*Deferred, len(best))
	for n, i := range best {
		found[n] = left[i]
		s.loaded[left[i].key()] = true
	}
	return found, err
}

// FoundText is what the model sees of the outcome of a search.
func FoundText(found []*Deferred) string { return hosted.FoundText(Spaces(found)) }
