package toolset

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// serverTools are the tools of a request that the filter runs.
type serverTools struct {
	defined     []mcpServer
	toolsets    []mcpToolset
	maxSearches int    // 0: any number
	container   string // that the request names, or else the one of the conversation
	named       bool   // the request names it
}

// builtinOf returns the built-in tool of a tool's type, which ends with the date of its
// version; "" if there is none.
func builtinOf(kind string) tools.Builtin {
	for _, b := range hosted.Builtins {
		if b.Block != "" && strings.HasPrefix(kind, b.Block+"_") {
			return b.Name
		}
	}
	return ""
}

// readServerTool reads a tool that is none of the client's functions: a toolset of the client,
// or a tool that Anthropic's service runs. Where the filter cannot run
// it, it is ignored: most clients can do without.
func (r *Reader) readServerTool(kind string, v jsontext.Field) *apierror.Error {
	if kind == "mcp_toolset" && r.offer.Runs() {
		return r.readToolset(v)
	}
	if family := toolsetOf(kind); family != "" {
		return r.readClientToolset(family, v)
	}
	if name := names.SearchOf(kind); name != "" {
		return r.readSearch(kind, name, v)
	}
	s, err := r.offer.AddBuiltin(builtinOf(kind), kind, v.Path)
	if err != nil {
		return err
	}
	if s == nil {
		// A tool that says what it takes is one that the client runs, whatever its type is.
		if v.Get("input_schema").IsObject() {
			return r.readTool(v, nil)
		}
		names.IgnoreKind(r.ignored, "tools.", kind)
		r.noteAbsent(v.Result)
		return nil
	}

	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "type", "name", "cache_control":
		case "max_uses":
			return v.SetInteger(&r.served.maxSearches, 1, math.MaxInt32)
		case "allowed_domains", "blocked_domains":
			// What the client excludes would be searched all the same.
			if v.IsArray() && v.Get("#").Int() > 0 {
				return apierror.Invalid(v.Path,
					"The search that runs here cannot be limited by %q. Leave the field out, or the tool.", key)
			}
		default:
			r.ignored.Add(v.Path)
		}
		return nil
	})
}

// ReadContainer reads the id of the container in which code runs, or {"id":…}.
func (r *Reader) ReadContainer(v jsontext.Field) (err *apierror.Error) {
	id := v
	if v.IsObject() {
		if err := ContainerFields.Others(v, r.ignored); err != nil {
			return err
		}
		id = jsontext.Field{Result: v.Get("id"), Path: v.Path + ".id"}
	}
	if id.Exists() && id.Type != gjson.Null {
		r.served.container, err = id.ShortText()
		// Only a container that the request names is listed as ignored where no tool runs in it.
		r.served.named = r.served.container != ""
	}
	return err
}

// findServers finds the servers of mcp_servers, with what the toolsets say of them.
func (r *Reader) findServers() *apierror.Error {
	served := &r.served
	// First what is wrong among the names: whether a server can be found would hide it.
	if err := served.checkToolsets(); err != nil {
		return err
	}
	for i := range served.defined {
		s := &served.defined[i]
		if err := r.findServer(s); err != nil {
			return err
		}
	}

	isBuiltin := func(s *hosted.Server) bool { return s.Builtin != nil }
	if served.named && !slices.ContainsFunc(r.offer.Servers, isBuiltin) {
		r.ignored.Add("container")
	}
	return nil
}

// checkToolsets refuses servers and toolsets that do not belong together.
func (st *serverTools) checkToolsets() *apierror.Error {
	defined, used := map[string]bool{}, map[string]bool{}
	var servers, toolsets, unknown, unused refused

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
		unknown.err("The MCP server %s is not one of mcp_servers. Add it there.",
			"The MCP servers %s are not in mcp_servers. Add them there."),
		toolsets.err("Two toolsets name the MCP server %s. Send one.",
			"Two toolsets name each of the MCP servers %s. Send one for each."),
		servers.err("Two MCP servers have the name %s. Give every server a name of its own.",
			"Two MCP servers have each of the names %s. Give every server a name of its own."),
		unused.err("No toolset names the MCP server %s. Add one to the tools, or leave the server out.",
			"No toolsets name the MCP servers %s. Add them to the tools, or leave the servers out."),
	)
}

// refused are names that a request cannot have, and where the first is.
type refused struct {
	list []string
	path string
}

func (n *refused) add(name, path string) {
	n.list, n.path = append(n.list, name), cmp.Or(n.path, path)
}

// err returns the error about the names; nil if there are none.
func (n *refused) err(one, several string) *apierror.Error {
	if n.list == nil {
		return nil
	}
	return apierror.Invalid(n.path, "%s", apierror.One(n.list, one, several))
}

// renameCalls gives earlier calls of servers' tools the names that the model sees.
func (r *Reader) renameCalls() {
	for _, s := range r.offer.Servers {
		for i := range r.input.Items {
			item := &r.input.Items[i]
			isCall := item.Kind == turn.Call && !item.Builtin && item.Namespace == s.Label
			// Clients send the server's names back, and the model must read those that it was offered.
			if len(s.Numbered) > 0 && isCall {
				item.Name = s.ToModel(item.Name)
			}
		}
	}
}

// choose settles which tools tool_choice demands, once all tools are known.
func (r *Reader) choose() *apierror.Error {
	if r.chosen == "" {
		return r.offer.CheckRequired(r.input)
	}

	var known bool
	if r.input.Choice.Allowed, known = r.named(r.chosen); known {
		return nil
	}
	// What the client demands may be a tool of the server that has failed. Of a name that nobody
	// has, preparing the turn says so.
	return r.offer.Unavailable()
}

// named returns the tools of a name: the client's, a built-in tool's, or those of MCP
// servers and of the client's toolsets. known is false of a name that nobody has.
func (r *Reader) named(name string) (_ []turn.ToolName, known bool) {
	own := []turn.ToolName{toolName(name)}
	// A name of the client's own tools means that tool, whatever the servers list.
	if slices.ContainsFunc(r.tools, func(t harmony.Tool) bool { return t.Name == name }) {
		return own, true
	}

	var found []turn.ToolName
	for _, s := range r.offer.Servers {
		switch {
		case s.Builtin != nil && s.Builtin.Block == name:
			found = append(found, s.Callable("")...)
		case s.Builtin == nil && s.Tool(name) != nil:
			found = append(found, s.Callable(name)...)
		}
	}

	found = append(found, members(r.toolsets, name)...)
	if len(found) > 0 {
		return found, true
	}
	// A deferred tool is not offered yet, and can be demanded all the same.
	return own, r.deferred(name) >= 0
}
