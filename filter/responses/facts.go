package responses

import (
	"cmp"
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// facts is what a conversation says to this service and not to the model.
type facts struct {
	listed    map[string][]tools.Tool // the tools of MCP servers, by label
	numbered  map[toolName]string     // of these, those that the model has under another name
	settled   map[string]bool         // the requests for approval that have been answered
	container string                  // where the tools of this service keep what is the conversation's; "" if they keep nothing
	pages     pages                   // that a browser has shown, in a turn that goes on
}

// with is the facts with those of what follows.
func (f facts) with(later facts) facts {
	return facts{
		listed: merged(f.listed, later.listed), numbered: merged(f.numbered, later.numbered), settled: merged(f.settled, later.settled),
		container: cmp.Or(later.container, f.container),
		pages:     pages{shown: merged(f.pages.shown, later.pages.shown), last: cmp.Or(later.pages.last, f.pages.last)},
	}
}

// merged is a map of its own with what both have.
func merged[K comparable, V any](a, b map[K]V) map[K]V {
	if len(a)+len(b) == 0 {
		return nil
	}
	m := make(map[K]V, len(a)+len(b))
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// bytes is roughly how much memory the facts take.
func (f facts) bytes() int64 {
	const overhead = 64
	n := int64(len(f.container))
	for label, list := range f.listed {
		n += int64(len(label)) + overhead
		for i := range list {
			t := &list[i]
			n += int64(len(t.Name)+len(t.Description)+len(t.InputSchema)+len(t.Annotations)) + 2*overhead
		}
	}
	for name, seen := range f.numbered {
		n += int64(len(name.namespace)+len(name.name)+len(seen)) + overhead
	}
	for id := range f.settled {
		n += int64(len(id)) + overhead
	}
	for _, p := range f.pages.shown {
		n += int64(len(p.url)+len(p.title)) + overhead
	}
	return n
}

func (d *decoder) noteList(label string, listed []tools.Tool) {
	if d.facts.listed == nil {
		d.facts.listed = map[string][]tools.Tool{}
	}
	d.facts.listed[label] = listed
	for name, seen := range numbered(listed) {
		d.noteName(toolName{label, name}, seen)
	}
}

// noteNumbered notes the names of the tools that are called here.
func (d *decoder) noteNumbered(spaces map[hostedSpace]*hosted) {
	for space, h := range spaces {
		for name, seen := range h.numbered {
			d.noteName(toolName{space.name, name}, seen)
		}
	}
}

func (d *decoder) noteName(name toolName, seen string) {
	if d.facts.numbered == nil {
		d.facts.numbered = map[toolName]string{}
	}
	d.facts.numbered[name] = seen
}

func (d *decoder) noteSettled(request string) {
	if d.facts.settled == nil {
		d.facts.settled = map[string]bool{}
	}
	d.facts.settled[request] = true
}
