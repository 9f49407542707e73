package toolset

import (
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

// readSearch reads a tool that searches for tools.
func (r *Reader) readSearch(kind, name string, v jsontext.Field) *apierror.Error {
	// What is found has to join the same reply, which has one model call here.
	if !r.offer.Runs() {
		names.IgnoreKind(r.ignored, "tools.", kind)
		r.noteAbsent(v.Result)
		r.unsearchable = true
		return nil
	}
	if slices.ContainsFunc(r.offer.Searches, func(s hosted.SearchTool) bool { return s.Name == name }) {
		return hosted.Twice(name, v.Path)
	}
	r.offer.Searches = append(r.offer.Searches, hosted.SearchTool{Name: name, ByPattern: name == names.SearchByPattern})

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
	if len(r.offer.Searches) > 0 {
		return
	}

	// A client searches for its own tools, unless it has meant the filter to do it.
	if r.unsearchable && len(r.offer.Deferred) > 0 {
		for i := range r.offer.Deferred {
			r.offerNow(&r.offer.Deferred[i])
		}
		// A reference to them adds nothing any more.
		r.offer.Deferred = nil
		r.ignored.Add("tools.defer_loading")
	}
	// It does not have the tools that servers list, and so cannot search for them.
	if slices.ContainsFunc(r.served.toolsets, func(t mcpToolset) bool { return t.filterLater("") != nil }) {
		r.ignored.Add("tools.defer_loading")
	}
}

// offerSearches offers the searches, once all tools are known, and lets the model call what
// they find.
func (r *Reader) offerSearches() {
	o := &r.offer
	if len(o.Searches) == 0 {
		return
	}

	// What has to be called must be known to the model at once.
	if i := r.deferred(r.chosen); i >= 0 {
		r.offerNow(&o.Deferred[i])
		o.Deferred = slices.Delete(o.Deferred, i, i+1)
	}

	var about hosted.SearchDescription
	for i := range o.Deferred {
		d := &o.Deferred[i]
		name := d.Tool.Name
		switch {
		case !d.Own():
			name = turn.ModelName(d.Namespace) + "." + turn.ModelName(name)
		case r.strict[name].Matters(r.rc):
			r.input.SetStrict(toolName(name), r.strict[name])
		}
		about.Add(name, d.Tool.Description)
	}
	r.input.Deferred = hosted.Spaces(o.Deferred)
	for i := range o.Searches {
		r.tools = append(r.tools, o.Searches[i].Function(&about))
	}
}

// offerNow offers a deferred tool of the client from the beginning.
func (r *Reader) offerNow(d *hosted.Deferred) {
	r.tools = append(r.tools, d.Tool)
	if strict := r.strict[d.Tool.Name]; strict.Matters(r.rc) {
		r.input.SetStrict(toolName(d.Tool.Name), strict)
	}
}

// deferred returns where a deferred tool of the client is; below 0: there is none of the name.
func (r *Reader) deferred(name string) int {
	return slices.IndexFunc(r.offer.Deferred, func(d hosted.Deferred) bool { return d.Own() && d.Shown == name })
}

// search returns what the reply needs of the searches; nil if there are none.
func (r *Reader) search() *hosted.Search {
	s := r.offer.Search(map[turn.ToolName]bool{})
	if s == nil {
		return nil
	}

	for i := range s.Deferred {
		d := &s.Deferred[i]
		// The reply outlives the body, of which the client's definitions are a part.
		if d.Own() {
			d.Shown = strings.Clone(d.Shown)
			d.Tool = harmony.Tool{
				Name:        d.Shown,
				Description: strings.Clone(d.Tool.Description),
				Parameters:  slices.Clone(d.Tool.Parameters),
			}
		}
		// The model has what the conversation has found.
		if r.referred[d.Shown] {
			s.Loaded[d.Name()] = true
		}
	}
	return s
}
