package toolset

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Joining gathers the tools that an item of the conversation refers to, by name, or the changes
// of tools that it makes.
type Joining struct {
	tools   *turn.JoinedTools // of the item
	names   []string
	changes []*Change

	// Of the outcome of a search: the tools that it names, and where its result is.
	found []string
	path  string
}

// Join returns an item with the tools of these names, which join the conversation at its place
// in the messages, path.
// They stand where they were found, and not among the others, so that the prompt of
// the request before is a prefix of this one.
func (r *Reader) Join(path string, tools []string) (turn.Item, *Joining) {
	j := &Joining{tools: &turn.JoinedTools{}, names: tools}
	if r.joinings == nil {
		r.joinings = map[*turn.JoinedTools]*Joining{}
	}
	r.joinings[j.tools] = j
	return turn.Item{Kind: turn.Tools, Tools: j.tools, Path: path}, j
}

// Add adds a change, and reports whether it could: the changes of an item are of one kind. nil
// takes none.
func (j *Joining) Add(change *Change) bool {
	if j == nil || len(j.changes) > 0 && j.changes[0].removes != change.removes {
		return false
	}
	j.changes = append(j.changes, change)
	return true
}

// FoundAt is that the item is of a search, whose result at path names what it has found. Its
// text is known with the tools of servers.
func (j *Joining) FoundAt(path string) { j.path = path }

// Found adds a tool that the search has found. first is that the conversation refers to it for
// the first time.
func (j *Joining) Found(name string, first bool) {
	j.found = append(j.found, name)
	if first {
		j.names = append(j.names, name)
	}
}

// joinTools gives the items that refer to tools, or change them, what they bring. Members come
// in any order: which of the names are deferred tools shows only now.
func (r *Reader) joinTools() *apierror.Error {
	if len(r.joinings) == 0 {
		return nil
	}

	available := r.newAvailability()
	items := make([]turn.Item, 0, len(r.input.Items)+len(r.joinings))
	for _, item := range r.input.Items {
		j := r.joinings[item.Tools]
		if j == nil {
			items = append(items, item)
			continue
		}

		// The tools of servers are known only here. A compaction keeps no result.
		if last := len(items) - 1; j.path != "" && last >= 0 && items[last].Path == j.path {
			items[last].Text = hosted.FoundText(hosted.Spaces(available.foundTools(j.found)))
		}
		told, err := available.apply(j)
		if err != nil {
			return err
		}
		// References to tools that are offered from the beginning, or that do not exist, add nothing.
		if len(j.tools.Namespaces) > 0 {
			items = append(items, item)
		}
		if told != "" {
			items = append(items, turn.Item{Kind: turn.Instructions, Text: told, Path: item.Path})
		}
	}

	r.input.Items, r.input.Withdrawn = items, available.withdrawn
	if r.compacts {
		r.changes = available.changes()
	}
	return nil
}
