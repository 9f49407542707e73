package toolset

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// appendRaw appends a value of the request, or what it is without one.
func appendRaw(dst []byte, raw, absent string) []byte {
	if raw == "" {
		return append(dst, absent...)
	}
	return jsontext.AppendCompact(dst, raw)
}

// With a tool of the type tool_search, tools that have defer_loading stay out of the
// prompt until they are found, as package hosted says. The client runs the search, or
// this service does.

// SearchName is the name of the function that the model calls.
const SearchName = "tool_search"

// Search is a request's tool of the type tool_search.
type Search struct {
	Client      bool   // the client searches
	description string // of a client's search, as the client wrote it
	parameters  json.RawMessage
}

// Deferred is a tool that the model does not see before it is found.
type Deferred struct {
	hosted.Deferred

	definition string // as a reply lists it, JSON
}

// name is the tool's name to the client.
func (d *Deferred) name() turn.ToolName {
	return turn.ToolName{Namespace: d.Namespace, Name: d.Tool.Name}
}

// readSearch reads the tool that searches for tools.
func (r *Reader) readSearch(at jsontext.Field) *apierror.Error {
	if r.search != nil {
		return apierror.Invalid(at.Path, "The tool %q is twice among the tools.", SearchName)
	}

	s := &Search{}
	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type":
		case "execution":
			if v.Str != "client" && v.Str != "server" {
				return apierror.Invalid(v.Path, "The execution of a tool search must be client or server.")
			}
			s.Client = v.Str == "client"
		case "description":
			s.description, err = v.Text()
			// It outlives the body, as a part of what the conversation has joined.
			s.description = strings.Clone(s.description)
		case "parameters":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "A tool's parameters must be a JSON Schema object.")
			}
			s.parameters = json.RawMessage(strings.Clone(v.Raw))
		default:
			err = SearchFields.Other(key, v, r.ignored)
		}

		return err
	})
	r.search = s

	return err
}

// deferTool notes a tool that is not offered before it is found. The texts of its namespace, which
// all tools of it share, must outlive the body; those of the tool are copied.
func (r *Reader) deferTool(space *harmony.Namespace, t *harmony.Tool, definition string) {
	r.Deferred = append(r.Deferred, Deferred{
		Deferred: hosted.Deferred{
			Namespace: space.Name, About: space.Description,
			Tool: harmony.Tool{
				Name: strings.Clone(t.Name), Description: strings.Clone(t.Description),
				Parameters: json.RawMessage(strings.Clone(string(t.Parameters))),
			},
		},
		definition: string(jsontext.AppendCompact(nil, definition)),
	})
}

// offerSearch completes the namespaces of a list of tools: with the search, or with
// the deferred tools where nothing can search for them. The service can search only
// where a reply can have several model calls.
func (r *Reader) offerSearch(spaces []harmony.Namespace) []harmony.Namespace {
	servers := r.search != nil && !r.search.Client
	if servers && r.config.Client == nil {
		r.ignored.Add("tools." + SearchName)
		r.search, servers = nil, false
	}

	// Servers of earlier items have been offered or deferred when those items were read.
	for _, h := range r.Hosted[r.others:] {
		// A client cannot search what it does not have.
		h.deferred = h.deferred && servers
	}

	// Without a search the deferred tools could never be found: they are offered at once.
	if r.search == nil {
		if len(r.Deferred) > 0 {
			r.ignored.Add("tools.defer_loading")
		}
		spaces = append(spaces, namespacesOf(r.Deferred)...)
		r.Deferred = nil
		return mergeNamespaces(spaces)
	}

	return mergeNamespaces(append(spaces, harmony.Namespace{
		Name:  turn.FunctionsNamespace,
		Tools: []harmony.Tool{r.searchFunction()},
	}))
}

// searchFunction is the search as the model sees it.
func (r *Reader) searchFunction() harmony.Tool {
	s := r.search
	f := harmony.Tool{Name: SearchName, Description: s.description, Parameters: s.parameters}
	if len(f.Parameters) == 0 || !s.Client {
		f.Parameters = json.RawMessage(hosted.SearchParameters)
	}
	if s.description == "" || !s.Client {
		f.Description = r.describeSearch()
	}
	return f
}

// describeSearch names what can be found: namespaces with their descriptions, and
// functions that have none.
func (r *Reader) describeSearch() string {
	var about hosted.SearchDescription
	// Plain functions are named one by one, the tools of a namespace together.
	seen := map[string]bool{turn.FunctionsNamespace: true}
	for _, h := range r.Hosted {
		if h.deferred {
			seen[h.Label] = true
			about.Add(h.Label, h.Description)
		}
	}

	for i := range r.Deferred {
		d := &r.Deferred[i]
		// A function without a namespace has nothing else that could describe it.
		if d.Namespace == turn.FunctionsNamespace {
			about.Add(d.Tool.Name, d.Tool.Description)
		} else if !seen[d.Namespace] {
			seen[d.Namespace] = true
			about.Add(d.Namespace, d.About)
		}
	}

	return about.String()
}

// namespacesOf returns tools in their namespaces.
func namespacesOf(deferred []Deferred) []harmony.Namespace {
	spaces := make([]harmony.Namespace, 0, len(deferred))
	for i := range deferred {
		d := &deferred[i]
		spaces = append(spaces, harmony.Namespace{
			Name:        d.Namespace,
			Description: d.About,
			Tools:       []harmony.Tool{d.Tool},
		})
	}
	return mergeNamespaces(spaces)
}

// mergeNamespaces puts the tools of a namespace that is there several times into the
// first. Only namespaces with equal names are merged; names that differ and look the
// same to the model are an error of the request, which is found later.
func mergeNamespaces(spaces []harmony.Namespace) []harmony.Namespace {
	merged := make([]harmony.Namespace, 0, len(spaces))
	at := make(map[string]int, len(spaces))
	for _, space := range spaces {
		// The order of the first occurrence stays: it is a part of the prefix that engines cache.
		i, ok := at[space.Name]
		if !ok {
			at[space.Name] = len(merged)
			// The array beyond the slice is the caller's: appending must not write into it.
			space.Tools = slices.Clip(space.Tools)
			merged = append(merged, space)
			continue
		}

		merged[i].Tools = append(merged[i].Tools, space.Tools...)
		if merged[i].Description == "" {
			merged[i].Description = space.Description
		}
	}

	return merged
}

// deferHosted defers the tools of a server that has listed them.
func (r *Reader) deferHosted(h *Server) {
	space := h.Offered()
	space.Name, space.Description = strings.Clone(space.Name), strings.Clone(space.Description)
	for i := range space.Tools {
		t := &space.Tools[i]
		definition := jsontext.AppendString([]byte(`{"type":"function","name":`), t.Name)
		definition = jsontext.AppendString(append(definition, `,"description":`...), t.Description)
		definition = appendRaw(append(definition, `,"parameters":`...), string(t.Parameters),
			`{"type":"object","properties":{}}`)
		r.deferTool(&space, t, string(append(definition, `,"strict":false,"defer_loading":true}`...)))
	}
}

// loadChosen offers the deferred tools that tool_choice names. Without the search the
// model could not find them.
func (r *Reader) loadChosen() {
	var chosen []Deferred
	for i := range r.Deferred {
		d := &r.Deferred[i]
		if slices.Contains(r.input.Choice.Allowed, d.name()) {
			chosen = append(chosen, *d)
		}
	}
	r.input.Tools = mergeNamespaces(append(r.input.Tools, namespacesOf(chosen)...))
}

// Find returns the deferred tools that fit the arguments of a search best, without those that
// the model has; none where the search takes too much of the request's work.
func (c *Called) Find(arguments string) []*Deferred {
	var tools []*Deferred
	var candidates []*hosted.Deferred
	for i := range c.Deferred {
		if d := &c.Deferred[i]; !c.Loaded[d.name()] {
			tools, candidates = append(tools, d), append(candidates, &d.Deferred)
		}
	}

	// The model sees the outcome of a search in its output alone, which has no place for a reason.
	best, _ := hosted.SearchDeferred(hosted.SearchSteps(c.rc), candidates, arguments)

	found := make([]*Deferred, len(best))
	for i, k := range best {
		found[i] = tools[k]
	}

	return found
}

// Load notes tools that the model has from now on.
func (c *Called) Load(found []*Deferred) {
	for _, d := range found {
		if c.Loaded == nil {
			c.Loaded = map[turn.ToolName]bool{}
		}
		c.Loaded[d.name()] = true
	}
}

// AppendFound appends the tools of a search's output, as elements of an array:
// functions as they are, others in their namespaces.
func AppendFound(dst []byte, found []*Deferred) []byte {
	done := map[string]bool{}
	begin := len(dst)
	next := func() {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
	}

	for i, d := range found {
		switch {
		case d.Namespace == turn.FunctionsNamespace:
			next()
			dst = append(dst, d.definition...)
		// A namespace comes once, at the place of its best tool, with all of its tools that were found.
		case !done[d.Namespace]:
			done[d.Namespace] = true
			next()
			dst = jsontext.AppendString(append(dst, `{"type":"namespace","name":`...), d.Namespace)
			dst = jsontext.AppendString(append(dst, `,"description":`...), d.About)
			dst = append(dst, `,"tools":[`...)
			for k, other := range found[i:] {
				if other.Namespace != d.Namespace {
					continue
				}
				if k > 0 {
					dst = append(dst, ',')
				}
				dst = append(dst, other.definition...)
			}
			dst = append(dst, `]}`...)
		}
	}

	return dst
}
