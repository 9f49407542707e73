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

// readSearch reads the tool that searches for tools.
func (r *Reader) readSearch(at jsontext.Field) *apierror.Error {
	if len(r.offer.Searches) > 0 {
		return hosted.Twice(SearchName, at.Path)
	}

	s := hosted.SearchTool{Name: SearchName}
	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type":
		case "execution":
			if v.Str != "client" && v.Str != "server" {
				return apierror.Invalid(v.Path, "The execution of a tool search must be client or server.")
			}
			s.Client = v.Str == "client"
		case "description":
			s.Description, err = v.Text()
			// It outlives the body, as a part of what the conversation has joined.
			s.Description = strings.Clone(s.Description)
		case "parameters":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "A tool's parameters must be a JSON Schema object.")
			}
			s.Parameters = json.RawMessage(strings.Clone(v.Raw))
		default:
			err = SearchFields.Other(key, v, r.ignored)
		}

		return err
	})
	r.offer.Searches = append(r.offer.Searches, s)

	return err
}

// deferTool notes a tool that is not offered before it is found. The texts of its namespace, which
// all tools of it share, must outlive the body; those of the tool are copied. Its definition is
// kept as it was sent: the output of a search repeats it.
func (r *Reader) deferTool(space *harmony.Namespace, t *harmony.Tool, definition string) {
	r.offer.Deferred = append(r.offer.Deferred, hosted.Deferred{
		Namespace: space.Name, About: space.Description,
		Tool: harmony.Tool{
			Name: strings.Clone(t.Name), Description: strings.Clone(t.Description),
			Parameters: json.RawMessage(strings.Clone(string(t.Parameters))),
		},
		Shown: string(jsontext.AppendCompact(nil, definition)),
	})
}

// definitionOf is the definition of a tool of a server, as the output of a search has it.
func definitionOf(t *harmony.Tool) string {
	dst := jsontext.AppendString([]byte(`{"type":"function","name":`), t.Name)
	dst = jsontext.AppendString(append(dst, `,"description":`...), t.Description)
	dst = appendRaw(append(dst, `,"parameters":`...), string(t.Parameters), `{"type":"object","properties":{}}`)
	return string(append(dst, `,"strict":false,"defer_loading":true}`...))
}

// offerSearch completes the namespaces of a list of tools: with the search, or with
// the deferred tools where nothing can search for them. The service can search only
// where a reply can have several model calls.
func (r *Reader) offerSearch(spaces []harmony.Namespace) []harmony.Namespace {
	o := &r.offer
	servers := len(o.Searches) > 0 && !o.Searches[0].Client
	if servers && !o.Runs() {
		r.ignored.Add("tools." + SearchName)
		o.Searches, servers = nil, false
	}

	// Servers of earlier items have been offered or deferred when those items were read.
	for _, s := range o.Servers[r.others:] {
		// A client cannot search what it does not have.
		if !servers {
			s.Later = nil
		}
	}

	// Without a search the deferred tools could never be found: they are offered at once.
	if len(o.Searches) == 0 {
		if len(o.Deferred) > 0 {
			r.ignored.Add("tools.defer_loading")
		}
		spaces = append(spaces, hosted.Spaces(o.Deferred)...)
		o.Deferred = nil
		return hosted.Merge(spaces)
	}

	return hosted.Merge(append(spaces, harmony.Namespace{
		Name:  turn.FunctionsNamespace,
		Tools: []harmony.Tool{o.Searches[0].Function(r.describeSearch())},
	}))
}

// describeSearch names what can be found: namespaces with their descriptions, and
// functions that have none.
func (r *Reader) describeSearch() *hosted.SearchDescription {
	var about hosted.SearchDescription
	// Plain functions are named one by one, the tools of a namespace together.
	seen := map[string]bool{turn.FunctionsNamespace: true}
	for _, s := range r.offer.Servers {
		if s.Later != nil {
			seen[s.Label] = true
			about.Add(s.Label, s.Description)
		}
	}

	for i := range r.offer.Deferred {
		d := &r.offer.Deferred[i]
		// A function without a namespace has nothing else that could describe it.
		if d.Own() {
			about.Add(d.Tool.Name, d.Tool.Description)
		} else if !seen[d.Namespace] {
			seen[d.Namespace] = true
			about.Add(d.Namespace, d.About)
		}
	}

	return &about
}

// loadChosen offers the deferred tools that tool_choice names. Without the search the
// model could not find them.
func (r *Reader) loadChosen() {
	var chosen []hosted.Deferred
	for i := range r.offer.Deferred {
		d := &r.offer.Deferred[i]
		if slices.Contains(r.input.Choice.Allowed, d.Name()) {
			chosen = append(chosen, *d)
		}
	}
	r.input.Tools = hosted.Merge(append(r.input.Tools, hosted.Spaces(chosen)...))
}

// AppendFound appends the tools of a search's output, as elements of an array:
// functions as they are, others in their namespaces.
func AppendFound(dst []byte, found []hosted.Deferred) []byte {
	done := map[string]bool{}
	begin := len(dst)
	next := func() {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
	}

	for i, d := range found {
		switch {
		case d.Own():
			next()
			dst = append(dst, d.Shown...)
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
				dst = append(dst, other.Shown...)
			}
			dst = append(dst, `]}`...)
		}
	}

	return dst
}
