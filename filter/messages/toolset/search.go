package messages

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// With a tool of the type tool_search_tool_bm25 or tool_search_tool_regex, this service
// searches for deferred tools, as package hosted says: clients see a server_tool_use and its
// tool_search_tool_result. Without one the client searches itself, by a tool of its own whose
// results have references.

// The searches, by the names that clients know.
const (
	searchByWords   = "tool_search_tool_bm25"
	searchByPattern = "tool_search_tool_regex"
)

// searchOf returns the search of a tool's type, with or without a date; "" if it is none.
func searchOf(kind string) string {
	if at := strings.LastIndexByte(kind, '_'); at >= 0 && isDate(kind[at+1:]) {
		kind = kind[:at]
	}
	if kind == searchByWords || kind == searchByPattern {
		return kind
	}
	return ""
}

// toolSearch is what the reply needs of a request's searches for tools.
type toolSearch struct {
	names    []string // of the searches
	deferred []deferredTool
	loaded   map[turn.ToolName]bool // the tools that the model has already
}

// deferredTool is a tool that a search finds: one of the client, or of an MCP server.
type deferredTool struct {
	hosted.Deferred

	// shown is the name by which clients know it.
	shown string
}

func (t *deferredTool) key() turn.ToolName {
	return turn.ToolName{Namespace: t.Namespace, Name: t.Tool.Name}
}

// readSearch reads a tool that searches for tools.
func (d *decoder) readSearch(kind, name string, v jsontext.Field) *apierror.Error {
	// What is found has to join the same reply, which has one model call here.
	if d.api.Tools == nil {
		d.ignoreKind("tools.", kind)
		d.noteAbsent(v.Result)
		d.unsearchable = true
		return nil
	}
	if slices.Contains(d.searches, name) {
		return apierror.Invalid(v.Path, "The tool %q is twice among the tools. Send it once.", name)
	}
	d.searches = append(d.searches, name)

	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		// A search that is deferred itself could never be found.
		case "type", "name", "cache_control", "defer_loading", "strict":
		case "allowed_callers":
			return toolFields.Other(key, v, &d.ignored)
		default:
			d.ignored.Add(v.Path)
		}
		return nil
	})
}

// offerUnsearchable offers deferred tools at once where nothing can search for them.
func (d *decoder) offerUnsearchable() {
	if len(d.searches) > 0 {
		return
	}

	// A client searches for its own tools, unless it has meant the filter to do it.
	if d.unsearchable && len(d.deferred) > 0 {
		for _, name := range d.deferredNames {
			d.offerDeferred(name)
		}
		d.ignored.Add("tools.defer_loading")
	}
	// It does not have the tools that servers list, and so cannot search for them.
	if slices.ContainsFunc(d.served.toolsets, func(t toolset) bool { return t.defersAny() }) {
		d.ignored.Add("tools.defer_loading")
	}
}

// deferServed finds the tools of servers that only a search offers.
func (d *decoder) deferServed() {
	if len(d.searches) == 0 {
		return
	}
	for _, s := range d.served.servers {
		set := d.served.toolsetOf(s.Label)
		if set == nil || s.Builtin != nil {
			continue
		}
		space := s.Offered()
		for i, t := range s.Tools {
			// What has to be called must be known to the model at once.
			if !set.defers(t.Name) || t.Name == d.chosen {
				continue
			}
			d.served.later = append(d.served.later, deferredTool{
				Deferred: hosted.Deferred{Namespace: space.Name, About: space.Description, Tool: space.Tools[i]},
				shown:    t.Name,
			})
		}
	}
}

// offerSearches offers the searches, once all tools are known, and lets the model call what
// they find.
func (d *decoder) offerSearches() {
	if len(d.searches) == 0 {
		return
	}

	// What has to be called must be known to the model at once.
	d.offerDeferred(d.chosen)
	var about hosted.SearchDescription
	deferred := d.allDeferred()
	for _, t := range deferred {
		name := t.Tool.Name
		switch own := t.Namespace == turn.FunctionsNamespace; {
		case !own:
			name = turn.ModelName(t.Namespace) + "." + turn.ModelName(name)
		case d.strict[name]:
			d.input.Strict[toolName(name)] = true
		}
		about.Add(name, t.Tool.Description)
	}
	d.input.Deferred = spacesOf(deferred)

	for _, name := range d.searches {
		parameters := hosted.SearchParameters
		if name == searchByPattern {
			parameters = hosted.PatternParameters
		}
		d.tools = append(d.tools, harmony.Tool{
			Name: name, Description: about.String(), Parameters: json.RawMessage(parameters),
		})
	}
}

// offerDeferred offers a deferred tool from the beginning.
func (d *decoder) offerDeferred(name string) {
	t, ok := d.deferred[name]
	if !ok {
		return
	}
	d.tools = append(d.tools, t)
	if d.strict[name] {
		d.input.Strict[toolName(name)] = true
	}
	// A reference to it adds nothing any more.
	delete(d.deferred, name)
	d.deferredNames = slices.DeleteFunc(slices.Clone(d.deferredNames), func(n string) bool { return n == name })
}

// allDeferred returns the deferred tools: the client's, and those of servers after them.
func (d *decoder) allDeferred() []*deferredTool {
	all := make([]*deferredTool, 0, len(d.deferredNames)+len(d.served.later))
	for _, name := range d.deferredNames {
		own := hosted.Deferred{Namespace: turn.FunctionsNamespace, Tool: d.deferred[name]}
		all = append(all, &deferredTool{own, name})
	}
	for i := range d.served.later {
		all = append(all, &d.served.later[i])
	}
	return all
}

// spacesOf returns the namespaces of deferred tools, in the order of their first tools.
func spacesOf(list []*deferredTool) (spaces []harmony.Namespace) {
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
func (d *decoder) search() *toolSearch {
	if len(d.searches) == 0 {
		return nil
	}

	s := &toolSearch{names: d.searches, loaded: map[turn.ToolName]bool{}}
	for _, t := range d.allDeferred() {
		kept := *t
		// The reply outlives the body, of which the client's definitions are a part.
		if kept.Namespace == turn.FunctionsNamespace {
			kept.shown = strings.Clone(t.shown)
			kept.Tool = harmony.Tool{
				Name: kept.shown, Description: strings.Clone(t.Tool.Description),
				Parameters: slices.Clone(t.Tool.Parameters),
			}
		}
		s.deferred = append(s.deferred, kept)
		// The model has what the conversation has found.
		if d.found[t.shown] {
			s.loaded[kept.key()] = true
		}
	}
	return s
}

// bytes is about how much memory the definitions take; 0 for nil.
func (s *toolSearch) bytes() int {
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

// has reports whether a call is one of a search; nil has none.
func (s *toolSearch) has(call *turn.CalledTool) bool {
	return s != nil && call.Namespace == turn.FunctionsNamespace && slices.Contains(s.names, call.Name)
}

// find runs a search, with spend for its steps of work. The model has what it finds from now on.
func (s *toolSearch) find(spend func(steps int) error, name, arguments string) ([]*deferredTool, error) {
	var left []*deferredTool
	var candidates []*hosted.Deferred
	for i := range s.deferred {
		if t := &s.deferred[i]; !s.loaded[t.key()] {
			left, candidates = append(left, t), append(candidates, &t.Deferred)
		}
	}

	var best []int
	var err error
	if name == searchByPattern {
		best, err = hosted.MatchDeferred(spend, candidates, arguments)
	} else {
		best, err = hosted.SearchDeferred(spend, candidates, arguments)
	}

	found := make([]*deferredTool, len(best))
	for n, i := range best {
		found[n] = left[i]
		s.loaded[left[i].key()] = true
	}
	return found, err
}

// foundText is what the model sees of the outcome of a search.
func foundText(found []*deferredTool) string { return hosted.FoundText(spacesOf(found)) }

// runSearch returns the run of a search, whose result is known at once: the search takes no
// server.
func (e *encoder) runSearch(p *reply.Part, refused *tools.Result) *reply.Run {
	// Of a search that breaks a bound nothing is found. The client gets the reason.
	var found []*deferredTool
	code, result := "", refused
	if refused != nil {
		code = "too_many_requests"
	} else {
		var err error
		spend := hosted.SearchSteps(e.request.rc)
		found, err = e.request.search.find(spend, p.Call.Name, hosted.SearchArguments(string(p.Whole)))
		result = &tools.Result{Text: foundText(found)}
		if err != nil {
			code, result = "invalid_tool_input", &tools.Result{Error: "Nothing was searched: " + err.Error() + "."}
		}
	}

	call := p.Call
	run := &reply.Run{Call: call, Known: result, Show: func(dst []byte, result *tools.Result) []byte {
		return e.appendBlock(dst, appendFound(nil, call, found, code, result))
	}}
	if len(found) > 0 {
		run.Joins = &turn.JoinedTools{Namespaces: spacesOf(found)}
	}
	return run
}

// appendFound appends the block of a search's outcome.
func appendFound(dst []byte, call *turn.CalledTool, found []*deferredTool, code string, result *tools.Result) []byte {
	dst = append(dst, `{"type":"tool_search_tool_result","tool_use_id":`...)
	dst = append(jsontext.AppendString(dst, searchID(call.ID)), `,"content":`...)
	if code != "" {
		return appendFailure(dst, "tool_search_tool_result", code, result)
	}

	dst = append(dst, `{"type":"tool_search_tool_search_result","tool_references":[`...)
	for i, t := range found {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(append(dst, `{"type":"tool_reference","tool_name":`...), t.shown)
		dst = append(dst, '}')
	}
	return append(dst, "]}}"...)
}

// searchID is the id of a search, as clients know it.
func searchID(callID string) string { return builtinPrefix + strings.TrimPrefix(callID, callPrefix) }

// readFound reads the references of a search's outcome. joins are the tools that it finds; not
// those that the model has already. The text of a result with references follows once all
// tools are known.
func (m *message) readFound(v jsontext.Field, joins *joining, result *turn.Item) *apierror.Error {
	references := jsontext.Field{Result: v.Get("content.tool_references"), Path: v.Path + ".content.tool_references"}
	// An error has no references, and a text of its own.
	if !references.Exists() {
		result.Text = servedText(v.Get("content"))
		return nil
	}

	joins.path = v.Path
	return references.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if err := cmp.Or(m.d.countBlock(), v.RequireText("tool_name")); err != nil {
			return err
		}
		name := v.Get("tool_name").Str
		joins.found = append(joins.found, name)
		if m.d.refers(name) {
			joins.names = append(joins.names, name)
		}
		return nil
	})
}

// isSearch reports whether a block's call is one of a search.
func isSearch(v gjson.Result) bool { return searchOf(v.Get("name").Str) != "" }
