package toolset

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A message of the system adds tools in mid-conversation (tool_addition) and withdraws them
// (tool_removal). A tool that is added stands at that place. One that is withdrawn stays where
// it stands, so that the engine's prefix cache holds: the model is told, and its calls of the
// tool are not made.

// codeUnresolved is the code of an error about a change of a tool that is not there.
const codeUnresolved = "tool_reference_unresolved"

// Change is a change of a tool, or of all tools of a server.
type Change struct {
	// Where the tool of the block is, and its JSON.
	path string
	raw  string

	removes bool
	made    bool // the block is one of a compaction

	// The tool that the change names, with the MCP server that has it; "": a tool of the client,
	// or all tools of the server.
	server string
	name   string
	// defined is the tool that it brings; nil: it is there already.
	defined *definedTool
}

// ReadChange reads {"type":"tool_addition","tool":{…}} or a tool_removal. made is that the filter
// has written the block, for a compaction: a tool that is gone from the request since is no error
// then. nil without an error is of a tool that the filter runs, which has been added to the tools
// of the request.
func (r *Reader) ReadChange(kind string, v jsontext.Field, made bool) (*Change, *apierror.Error) {
	tool := jsontext.Field{Result: v.Get("tool"), Path: v.Path + ".tool"}
	change := Change{path: tool.Path, raw: tool.Raw, removes: kind == "tool_removal", made: made}

	var err *apierror.Error
	switch reference := tool.Get("type").Str; {
	case reference == "tool_reference":
		err = tool.RequireText("name")
		change.name = tool.Get("name").Str
	case reference == "mcp_tool_reference":
		err = tool.RequireText("server_name", "name")
		change.server, change.name = tool.Get("server_name").Str, tool.Get("name").Str
	case reference == "mcp_toolset_reference":
		err = tool.RequireText("server_name")
		change.server = tool.Get("server_name").Str
	case reference == "tool_definition" && !change.removes:
		definition := jsontext.Field{Result: tool.Get("definition"), Path: tool.Path + ".definition"}
		change.defined, err = r.readDefinition(definition)
		if change.defined == nil {
			return nil, err
		}
		change.name = change.defined.Name
	default:
		return nil, apierror.Invalid(tool.Path+".type", "The tool of a block of type %q must be a tool_reference, an "+
			"mcp_tool_reference or an mcp_toolset_reference; that of a tool_addition may be a tool_definition.", kind)
	}

	return &change, err
}

// readDefinition reads a tool that a message brings: any entry of tools. nil without an error
// is one that the filter runs, or ignores: it is offered from the beginning, because Harmony
// has no other place for it.
func (r *Reader) readDefinition(v jsontext.Field) (*definedTool, *apierror.Error) {
	if !v.IsObject() {
		return nil, apierror.Invalid(v.Path, "A tool_definition has no definition. Send a tool as those of tools.")
	}

	kind := v.Get("type").Str
	published := findClientTool(kind)
	if kind != "" && kind != "custom" && published == nil && !v.Get("input_schema").IsObject() {
		return nil, r.readServerTool(kind, v)
	}
	t, err := r.parseTool(v, published)
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// availability is which tools there are, as the conversation changes them.
type availability struct {
	r *Reader
	// The client's functions, the deferred tools of servers, these also by the names that clients
	// know, and which of both the model has been shown.
	functions map[string]*definedTool
	later     map[turn.ToolName]*hosted.Deferred
	named     map[string][]hosted.Deferred
	shown     map[turn.ToolName]bool
	// repeated are the names of tools of servers that the results of searches have so far.
	repeated map[string]bool
	// withdrawn are the tools that must not be called any more; nil: there are none.
	withdrawn map[turn.ToolName]bool
	// made are the changes so far, as blocks, by what each is about; order is when. A later
	// change of the same takes the place of an earlier one.
	made  map[string]madeChange
	order int
	// all are the tools of servers, as far as they were needed.
	all map[*hosted.Server][]turn.ToolName
	// compared is how many tools and servers the search for one name may go through.
	compared int
}

// comparedInStep is how many names are compared in one step of the request's account.
const comparedInStep = 8

// madeChange is a change that the conversation has made.
type madeChange struct {
	order int
	block string
}

// note notes a change that the conversation has made.
func (a *availability) note(about, kind, tool string) {
	// Only a compaction has them.
	if !a.r.compacts {
		return
	}
	if a.made == nil {
		a.made = map[string]madeChange{}
	}
	a.order++
	block := jsontext.AppendCompact([]byte(`{"type":"`+kind+`","tool":`), tool)
	a.made[about] = madeChange{a.order, string(append(block, '}'))}
}

// changes returns the blocks that change the tools of the request to those of the
// conversation's end, separated by commas.
func (a *availability) changes() []byte {
	made := slices.SortedFunc(maps.Values(a.made), func(x, y madeChange) int { return cmp.Compare(x.order, y.order) })
	var dst []byte
	for i, change := range made {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, change.block...)
	}
	return dst
}

// newAvailability returns what is there at the beginning of the conversation.
func (r *Reader) newAvailability() *availability {
	a := &availability{
		r: r, functions: map[string]*definedTool{}, shown: map[turn.ToolName]bool{},
		later: map[turn.ToolName]*hosted.Deferred{}, named: map[string][]hosted.Deferred{}, repeated: map[string]bool{},
	}
	for _, t := range r.tools {
		a.functions[t.Name] = &definedTool{Tool: t}
		a.shown[toolName(t.Name)] = true
	}
	for i := range r.offer.Deferred {
		d := &r.offer.Deferred[i]
		if d.Own() {
			a.functions[d.Shown] = &definedTool{Tool: d.Tool, strict: r.strict[d.Shown]}
			continue
		}
		a.later[d.Name()], a.named[d.Shown] = d, append(a.named[d.Shown], *d)
	}

	// What find may go through for one name: the list of a server is none of the request's bytes.
	for _, s := range r.offer.Servers {
		a.compared += 1 + len(s.Tools)
	}
	for i := range r.toolsets {
		a.compared += len(r.toolsets[i].Tools)
	}
	return a
}

// foundTools returns the tools that a search has named: a function of the client, or the tools of
// servers that have the name. One that is gone was a function.
func (a *availability) foundTools(list []string) []hosted.Deferred {
	var found []hosted.Deferred
	for _, name := range list {
		if served := a.named[name]; a.functions[name] == nil && served != nil {
			// A search does not find again what the model has. A name that came with each result would
			// stand for the tools of hundreds of servers each time.
			if !a.repeated[name] {
				found = append(found, served...)
			}
			a.repeated[name] = true
			continue
		}
		own := hosted.Deferred{Namespace: turn.FunctionsNamespace, Tool: harmony.Tool{Name: name}, Shown: name}
		found = append(found, own)
	}
	return found
}

// apply gives an item its tools, and returns what the model is told beside; "": nothing.
func (a *availability) apply(j *Joining) (told string, err *apierror.Error) {
	for _, name := range j.names {
		if t := a.functions[name]; t != nil {
			if a.show(j, toolName(name)) {
				reference := jsontext.AppendString([]byte(`{"type":"tool_reference","name":`), name)
				a.note("."+name, "tool_addition", string(append(reference, '}')))
			}
			continue
		}
		for _, t := range a.named[name] {
			if a.show(j, t.Name()) {
				reference := jsontext.AppendString([]byte(`{"type":"mcp_tool_reference","server_name":`), t.Namespace)
				reference = jsontext.AppendString(append(reference, `,"name":`...), name)
				a.note(t.Namespace+"."+name, "tool_addition", string(append(reference, '}')))
			}
		}
	}

	var gone, again []string
	for _, change := range j.changes {
		if change.defined != nil {
			a.functions[change.name] = change.defined
			a.join(j, harmony.Namespace{Name: turn.FunctionsNamespace}, change.defined)
		}
		// A few bytes name all tools of a server, and a request can have thousands of changes.
		if err := a.r.rc.Spend(change.path, 1+a.compared/comparedInStep); err != nil {
			return "", err
		}
		changed, err := a.find(change)
		if err == nil {
			err = a.r.rc.Spend(change.path, len(changed))
		} else if change.made {
			continue
		}
		if err != nil {
			return "", err
		}

		a.noteChange(change)
		if !a.change(j, change.removes, changed) {
			continue
		}
		if change.removes {
			gone = append(gone, shownNames(changed))
		} else {
			again = append(again, shownNames(changed))
		}
	}

	switch {
	case gone != nil:
		return "These tools are not available any more, do not call them: " + strings.Join(gone, ", "), nil
	case again != nil:
		return "These tools are available again: " + strings.Join(again, ", "), nil
	}
	return "", nil
}

// change withdraws tools, or makes them available. It reports whether the model has to be told:
// it is not of tools that it has never seen, or that join.
func (a *availability) change(j *Joining, removes bool, tools []turn.ToolName) (told bool) {
	for _, name := range tools {
		space, tool := a.definition(name)
		hidden := tool != nil && !a.shown[name]
		switch {
		case removes && !a.withdrawn[name]:
			if a.withdrawn == nil {
				a.withdrawn = map[turn.ToolName]bool{}
			}
			a.withdrawn[name] = true
			told = told || !hidden
		case !removes && hidden:
			a.join(j, space, tool)
			delete(a.withdrawn, name)
		case !removes && a.withdrawn[name]:
			delete(a.withdrawn, name)
			told = true
		}
	}
	return told
}

// shownNames is how the model is told of the tools of a change.
func shownNames(tools []turn.ToolName) string {
	var shown []string
	for i, t := range tools {
		space := t.Namespace
		if space != turn.FunctionsNamespace && !t.Builtin {
			space = turn.ModelName(space)
		}
		// All tools of a server have one name here, however many they are.
		if t.Name == "" || i+1 < len(tools) && tools[i+1].Namespace == t.Namespace {
			return space
		}
		shown = append(shown, space+"."+turn.ModelName(t.Name))
	}
	return strings.Join(shown, ", ")
}

// noteChange notes a change of a message.
func (a *availability) noteChange(change *Change) {
	about, kind := change.server+"."+change.name, "tool_addition"
	switch {
	case change.removes:
		kind = "tool_removal"
	// A later reference means the tool of this definition, and does not replace it.
	case change.defined != nil:
		about = "=" + change.name
	}
	a.note(about, kind, change.raw)
}

// definition returns a function of the client, or a deferred tool of a server, with its namespace
// as it joins; nil: it is another tool, which is offered from the beginning.
func (a *availability) definition(name turn.ToolName) (space harmony.Namespace, t *definedTool) {
	space.Name = name.Namespace
	if name.Namespace == turn.FunctionsNamespace && !name.Builtin {
		return space, a.functions[name.Name]
	}
	if later := a.later[name]; later != nil {
		space.Description = later.About
		return space, &definedTool{Tool: later.Tool}
	}
	return space, nil
}

// show has a deferred tool join the conversation, and reports whether it was not there yet.
func (a *availability) show(j *Joining, name turn.ToolName) bool {
	if a.shown[name] {
		return false
	}
	space, t := a.definition(name)
	a.join(j, space, t)
	return true
}

// join has a tool join the conversation, in a namespace.
func (a *availability) join(j *Joining, space harmony.Namespace, t *definedTool) {
	a.shown[turn.ToolName{Namespace: space.Name, Name: t.Name}] = true
	at := slices.IndexFunc(j.tools.Namespaces, func(n harmony.Namespace) bool { return n.Name == space.Name })
	if at < 0 {
		at = len(j.tools.Namespaces)
		j.tools.Namespaces = append(j.tools.Namespaces, space)
	}
	joined := &j.tools.Namespaces[at]
	joined.Tools = append(joined.Tools, t.Tool)

	if !t.strict.Matters(a.r.rc) {
		return
	}
	if j.tools.Strict == nil {
		j.tools.Strict = map[turn.ToolName]bool{}
	}
	j.tools.Strict[toolName(t.Name)] = t.strict.On()
}

// find returns the tools that a change is about.
func (a *availability) find(change *Change) ([]turn.ToolName, *apierror.Error) {
	r := a.r
	if change.server == "" {
		if a.functions[change.name] != nil {
			return []turn.ToolName{toolName(change.name)}, nil
		}
		for _, s := range r.offer.Servers {
			if s.Builtin != nil && s.Builtin.Block == change.name {
				return a.toolsOf(s), nil
			}
		}
		if found := members(r.toolsets, change.name); found != nil {
			return found, nil
		}
		// A tool of the request that cannot be offered here is there to the client.
		if r.absent[change.name] {
			return nil, nil
		}
		return nil, unresolved(change, "name", change.name)
	}

	for _, s := range r.offer.Servers {
		switch {
		case s.Builtin != nil || s.Label != change.server:
			continue
		// Its tools are not known, and none of them is offered.
		case s.Failure != "" || !s.Known:
			return nil, nil
		case change.name == "":
			return a.toolsOf(s), nil
		case s.Tool(change.name) == nil:
			return nil, unresolved(change, "name", change.name)
		}
		return s.Callable(change.name), nil
	}
	// Without a loopback listener the servers of a request are ignored.
	if !r.offer.Runs() {
		return nil, nil
	}
	return nil, unresolved(change, "server_name", change.server)
}

// toolsOf returns the tools of a server.
func (a *availability) toolsOf(s *hosted.Server) []turn.ToolName {
	if tools, ok := a.all[s]; ok {
		return tools
	}

	tools := s.Callable("")
	if a.all == nil {
		a.all = map[*hosted.Server][]turn.ToolName{}
	}
	a.all[s] = tools
	return tools
}

func unresolved(change *Change, member, name string) *apierror.Error {
	return apierror.New(http.StatusBadRequest, codeUnresolved, change.path+"."+member,
		"There is no tool or MCP server %q here. Name one of tools or mcp_servers, or one that a message before has "+
			"added.", jsontext.Clip(name))
}

// noteAbsent notes the name of a tool that is not offered.
func (r *Reader) noteAbsent(v gjson.Result) {
	if r.absent == nil {
		r.absent = map[string]bool{}
	}
	r.absent[v.Get("name").Str] = true
}
