package read

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// serverState is what a conversation says to this service and not to the model.
type serverState struct {
	// Of MCP servers: the tools that they have listed, by label, and the names for the model
	// of those tools that have another name there.
	listed   map[string][]tools.Tool
	numbered map[turn.ToolName]string
	// answered are the requests for approval that have been answered.
	answered map[string]bool

	// Of built-in tools: their session, "" if they have none yet, and the pages that a browser
	// has shown in a turn that is not complete.
	container string
	pages     item.Pages

	// joined are the tools of items, and config is for the responses that follow.
	joined toolset.Joined
	config configuration
}

// with is the state with that of what follows.
func (s serverState) with(later serverState) serverState {
	return serverState{
		listed: merged(s.listed, later.listed), numbered: merged(s.numbered, later.numbered),
		answered:  merged(s.answered, later.answered),
		container: cmp.Or(later.container, s.container),
		pages:     s.pages.With(later.pages),
		joined:    s.joined.With(later.joined),
		config:    s.config.with(later.config),
	}
}

// merged is a new map with the entries of both.
func merged[K comparable, V any](a, b map[K]V) map[K]V {
	if len(a)+len(b) == 0 {
		return nil
	}
	m := make(map[K]V, len(a)+len(b))
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// bytes is roughly how much memory the state takes.
func (s serverState) bytes() int64 {
	const overhead = 64
	n := int64(len(s.container)+len(s.config.format)+len(s.config.path)) +
		s.pages.Bytes() + s.joined.Bytes()
	for label, list := range s.listed {
		n += int64(len(label)) + overhead
		for i := range list {
			t := &list[i]
			n += int64(len(t.Name)+len(t.Description)+len(t.InputSchema)+len(t.Annotations)) + 2*overhead
		}
	}

	for name, seen := range s.numbered {
		n += int64(len(name.Namespace)+len(name.Name)+len(seen)) + overhead
	}

	for id := range s.answered {
		n += int64(len(id)) + overhead
	}

	return n
}

func (s *serverState) noteList(label string, listed []tools.Tool) {
	if s.listed == nil {
		s.listed = map[string][]tools.Tool{}
	}
	s.listed[label] = listed
	// The numbers follow from the list alone, so that every later request has the same names.
	for name, seen := range hosted.Numbered(listed) {
		s.noteName(turn.ToolName{Namespace: label, Name: name}, seen)
	}
}

// noteHosted notes the names of the tools that are called here.
func (s *serverState) noteHosted(spaces map[hosted.Space]*hosted.Server) {
	for space, h := range spaces {
		for name, seen := range h.Numbered {
			s.noteName(turn.ToolName{Namespace: space.Name, Name: name}, seen)
		}
	}
}

func (s *serverState) noteName(name turn.ToolName, seen string) {
	if s.numbered == nil {
		s.numbered = map[turn.ToolName]string{}
	}
	s.numbered[name] = seen
}

func (s *serverState) noteAnswered(request string) {
	if s.answered == nil {
		s.answered = map[string]bool{}
	}
	s.answered[request] = true
}

// addList notes the tools of a server that the conversation lists already: the
// server is not asked for them again.
func (r *itemReader) addList(it item.Item) *apierror.Error {
	if it.Error.Exists() && it.Error.Type != gjson.Null {
		return nil
	}

	var listed []tools.Tool
	list := jsontext.Field{Result: it.At.Get("tools"), Path: it.At.Path + ".tools"}
	err := list.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= r.rc.Limits.Tools {
			return apierror.Invalid(v.Path, "More than %d tools.", r.rc.Limits.Tools)
		}
		listed = append(listed, tools.Tool{
			Name: strings.Clone(v.Get("name").Str), Description: strings.Clone(v.Get("description").Str),
			InputSchema: rawObject(v.Get("input_schema")), Annotations: rawObject(v.Get("annotations")),
		})
		return nil
	})
	if err == nil {
		r.state.noteList(strings.Clone(it.Server), listed)
	}

	return err
}

// rawObject is a copy of a JSON object; nil if v is none.
func rawObject(v gjson.Result) json.RawMessage {
	if !v.IsObject() {
		return nil
	}
	return json.RawMessage(strings.Clone(v.Raw))
}
