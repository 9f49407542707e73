package messages

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// serverTools are the tools of a request that the filter runs.
type serverTools struct {
	servers     []*hosted.Server // built-in tools first
	defined     []mcpServer
	toolsets    []toolset
	maxSearches int    // 0: any number
	container   string // that the request names, or else the one of the conversation
	named       bool   // the request names it

	// later are the tools that only a search finds, in the order of the servers; known once the
	// servers have listed their tools.
	later []deferredTool
}

// The names of the tools as clients of Anthropic's API know them.
const (
	searchName = "web_search"
	codeName   = "code_execution"
)

// builtinOf returns the built-in tool of a tool's type, which ends with the date of its
// version; "" if there is none.
func builtinOf(kind string) tools.Builtin {
	switch {
	case strings.HasPrefix(kind, searchName+"_"):
		return tools.WebSearch
	case strings.HasPrefix(kind, codeName+"_"):
		return tools.CodeInterpreter
	}
	return ""
}

// readServerTool reads a tool that is none of the client's functions: a toolset of the client,
// or a tool that Anthropic's service runs. Where the filter cannot run
// it, it is ignored: most clients can do without.
func (d *decoder) readServerTool(kind string, v jsontext.Field) *apierror.Error {
	if kind == "mcp_toolset" && d.api.Tools != nil {
		return d.readToolset(v)
	}
	if family := toolsetOf(kind); family != "" {
		return d.readClientToolset(family, v)
	}
	if name := searchOf(kind); name != "" {
		return d.readSearch(kind, name, v)
	}
	s := hosted.FindBuiltin(d.api.Tools, d.api.Builtins, builtinOf(kind), d.rc.Tenant)
	if s == nil {
		// A tool that says what it takes is one that the client runs, whatever its type is.
		if v.Get("input_schema").IsObject() {
			return d.readTool(v, nil)
		}
		d.ignoreKind("tools.", kind)
		d.noteAbsent(v.Result)
		return nil
	}

	// Two versions of a tool are two types, and still one tool to the model.
	for _, other := range d.served.servers {
		if other.Builtin == s.Builtin {
			return apierror.Invalid(v.Path, "The tool %q is twice among the tools. Send it once.", jsontext.Clip(kind))
		}
	}
	d.served.servers = append(d.served.servers, s)

	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "type", "name", "cache_control":
		case "max_uses":
			return v.SetInteger(&d.served.maxSearches, 1, math.MaxInt32)
		case "allowed_domains", "blocked_domains":
			// What the client excludes would be searched all the same.
			if v.IsArray() && v.Get("#").Int() > 0 {
				return apierror.Invalid(v.Path,
					"The search that runs here cannot be limited by %q. Leave the field out, or the tool.", key)
			}
		default:
			d.ignored.Add(v.Path)
		}
		return nil
	})
}

// readContainer reads the id of the container in which code runs, or {"id":…}.
func (d *decoder) readContainer(v jsontext.Field) (err *apierror.Error) {
	id := v
	if v.IsObject() {
		if err := containerFields.Others(v, &d.ignored); err != nil {
			return err
		}
		id = jsontext.Field{Result: v.Get("id"), Path: v.Path + ".id"}
	}
	if id.Exists() && id.Type != gjson.Null {
		d.served.container, err = id.ShortText()
		// Only a container that the request names is listed as ignored where no tool runs in it.
		d.served.named = d.served.container != ""
	}
	return err
}

// findServers finds the servers of mcp_servers, with what the toolsets say of them.
func (d *decoder) findServers() *apierror.Error {
	served := &d.served
	// First what is wrong among the names: whether a server can be found would hide it.
	if err := served.checkToolsets(); err != nil {
		return err
	}
	for i := range served.defined {
		s := &served.defined[i]
		if err := d.findServer(s); err != nil {
			return err
		}
	}

	isBuiltin := func(s *hosted.Server) bool { return s.Builtin != nil }
	if served.named && !slices.ContainsFunc(served.servers, isBuiltin) {
		d.ignored.Add("container")
	}
	return nil
}

// checkToolsets refuses servers and toolsets that do not belong together.
func (st *serverTools) checkToolsets() *apierror.Error {
	defined, used := map[string]bool{}, map[string]bool{}
	var servers, toolsets, unknown, unused names

	for i := range st.defined {
		server := &st.defined[i]
		if defined[server.name] && server.name != "" {
			servers.add(server.name, server.at.Path+".name")
		}
		defined[server.name] = true
	}

	for i := range st.toolsets {
		toolset := &st.toolsets[i]
		switch path := toolset.at.Path + ".mcp_server_name"; {
		case !defined[toolset.server]:
			unknown.add(toolset.server, path)
		case used[toolset.server]:
			toolsets.add(toolset.server, path)
		}
		used[toolset.server] = true
	}

	// Without any toolset, the older form is meant, in which a server stands for all its tools.
	for i := range st.defined {
		if server := &st.defined[i]; len(st.toolsets) > 0 && server.name != "" && !used[server.name] {
			unused.add(server.name, server.at.Path)
		}
	}

	return cmp.Or(
		unknown.refused("The MCP server %s is not one of mcp_servers. Add it there.",
			"The MCP servers %s are not in mcp_servers. Add them there."),
		toolsets.refused("Two toolsets name the MCP server %s. Send one.",
			"Two toolsets name each of the MCP servers %s. Send one for each."),
		servers.refused("Two MCP servers have the name %s. Give every server a name of its own.",
			"Two MCP servers have each of the names %s. Give every server a name of its own."),
		unused.refused("No toolset names the MCP server %s. Add one to the tools, or leave the server out.",
			"No toolsets name the MCP servers %s. Add them to the tools, or leave the servers out."),
	)
}

// names are names that a request cannot have, and where the first is.
type names struct {
	list []string
	path string
}

func (n *names) add(name, path string) {
	n.list, n.path = append(n.list, name), cmp.Or(n.path, path)
}

// refused returns the error about the names; nil if there are none.
func (n *names) refused(one, several string) *apierror.Error {
	if n.list == nil {
		return nil
	}
	return apierror.Invalid(n.path, "%s", apierror.One(n.list, one, several))
}

// offerServed offers the tools of the servers that are known. Earlier calls of them get
// the names that the model sees.
func (d *decoder) offerServed() {
	later := map[turn.ToolName]bool{}
	for i := range d.served.later {
		later[d.served.later[i].key()] = true
	}
	for _, s := range d.served.servers {
		for i := range d.input.Items {
			item := &d.input.Items[i]
			isCall := item.Kind == turn.Call && !item.Builtin && item.Namespace == s.Label
			// Clients send the server's names back, and the model must read those that it was offered.
			if len(s.Numbered) > 0 && isCall {
				item.Name = s.ToModel(item.Name)
			}
		}

		space := s.Offered()
		if s.Builtin == nil {
			space.Tools = slices.DeleteFunc(space.Tools, func(t harmony.Tool) bool {
				return later[turn.ToolName{Namespace: space.Name, Name: t.Name}]
			})
		}
		switch {
		case s.Space().System:
			d.input.Builtins = append(d.input.Builtins, space)
		case len(space.Tools) > 0:
			d.input.Tools = append(d.input.Tools, space)
		}
	}
}

// codeUnavailable is the code of an error that says that a tool that has to be called is
// missing.
const codeUnavailable = "tool_unavailable"

// choose settles which tools tool_choice demands, once all tools are known.
func (d *decoder) choose() *apierror.Error {
	if name := d.chosen; name != "" {
		d.input.Choice.Allowed = d.named(name)
		_, later := d.deferred[name]
		// A deferred tool is not offered yet, and can be demanded all the same.
		own := later || slices.ContainsFunc(d.input.Tools, func(space harmony.Namespace) bool {
			isNamed := func(t harmony.Tool) bool { return t.Name == name }
			return space.Name == turn.FunctionsNamespace && slices.ContainsFunc(space.Tools, isNamed)
		})
		if own || d.input.Choice.Allowed[0].Namespace != turn.FunctionsNamespace {
			return nil
		}
	} else if len(d.input.Builtins)+len(d.input.Tools) > 0 {
		return nil
	}

	// What the client demands may be a tool of the server that has failed: that is why it is
	// missing.
	failed := slices.IndexFunc(d.served.servers, func(s *hosted.Server) bool { return s.Failure != "" })
	if d.input.Choice.Required && failed >= 0 {
		s := d.served.servers[failed]
		return apierror.New(http.StatusFailedDependency, codeUnavailable, "tool_choice",
			"The field \"tool_choice\" asks for a call, but the tools of the MCP server %q could not be listed: "+
				"%s", jsontext.Clip(s.Label), s.Failure)
	}
	return nil
}

// named returns the tools of a name: the client's, a built-in tool's, or those of MCP
// servers and of the client's toolsets.
func (d *decoder) named(name string) []turn.ToolName {
	own := []turn.ToolName{toolName(name)}
	// A name of the client's own tools means that tool, whatever the servers list.
	if slices.ContainsFunc(d.tools, func(t harmony.Tool) bool { return t.Name == name }) {
		return own
	}

	var found []turn.ToolName
	for _, s := range d.served.servers {
		switch {
		case s.Builtin != nil && shownName(s) == name:
			for _, tool := range s.Names() {
				found = append(found, turn.ToolName{Namespace: s.Label, Name: tool, Builtin: s.Space().System})
			}
		case s.Builtin == nil && s.Tool(name) != nil:
			found = append(found, turn.ToolName{Namespace: s.Label, Name: s.ToModel(name)})
		}
	}

	found = append(found, d.members(name)...)
	// Of a name that nobody has, preparing the turn says so.
	if len(found) == 0 {
		return own
	}
	return found
}

// shownName returns the name under which clients know a built-in tool.
func shownName(s *hosted.Server) string {
	if s.Builtin.Name == tools.CodeInterpreter {
		return codeName
	}
	return searchName
}
