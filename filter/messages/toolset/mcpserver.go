package toolset

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// mcpServer is an entry of mcp_servers.
type mcpServer struct {
	at               jsontext.Field
	name, url, token string
	enabled          bool
	allowed          *hosted.Filter // nil: every tool
}

// mcpToolset is a tool of the type mcp_toolset.
type mcpToolset struct {
	at     jsontext.Field
	server string

	// What configs say of tools, by their names, and what is true of the others.
	off      bool // they are left out
	later    bool // a search has to find them
	enabled  map[string]bool
	deferred map[string]bool
}

// readToolset reads {"type":"mcp_toolset","mcp_server_name":…,"default_config":…,"configs":…}.
func (r *Reader) readToolset(at jsontext.Field) *apierror.Error {
	t := mcpToolset{at: at, enabled: map[string]bool{}, deferred: map[string]bool{}}

	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type", "cache_control":
		case "mcp_server_name":
			t.server, err = v.ShortText()
		case "default_config":
			enabled := true
			err = readToolConfig(v, r.ignored, &enabled, &t.later)
			t.off = !enabled
		case "configs":
			err = v.Entries(func(name string, v jsontext.Field) *apierror.Error {
				if max(len(t.enabled), len(t.deferred)) >= r.rc.Limits.Tools {
					return apierror.Invalid(v.Path, "The toolset has more than %d configs.", r.rc.Limits.Tools)
				}
				enabled, deferred := !t.off, t.later
				err := readToolConfig(v, r.ignored, &enabled, &deferred)
				// A config without one of them, or with null, leaves the tool to default_config, which
				// may follow.
				if v.Get("enabled").IsBool() {
					t.enabled[strings.Clone(name)] = enabled
				}
				if v.Get("defer_loading").IsBool() {
					t.deferred[strings.Clone(name)] = deferred
				}
				return err
			})
		default:
			r.ignored.Add(v.Path)
		}
		return err
	})

	r.served.toolsets = append(r.served.toolsets, t)
	return err
}

// readToolConfig reads {"enabled":…,"defer_loading":…}. deferred is nil for tools that are offered
// from the beginning.
func readToolConfig(v jsontext.Field, ignored *jsontext.Ignored, enabled, deferred *bool) *apierror.Error {
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch {
		case key == "enabled":
			return v.SetSwitch(enabled)
		case key == "defer_loading" && deferred != nil:
			return v.SetSwitch(deferred)
		}
		ignored.Add(v.Path)
		return nil
	})
}

// filterLater returns the filter of the tools that a search has to find; nil: there are none. A
// tool that has to be called must be known to the model at once.
func (t *mcpToolset) filterLater(chosen string) *hosted.Filter {
	f := &hosted.Filter{Except: map[string]bool{}}
	// An empty map selects no tool; nil selects every one.
	if !t.later {
		f.Names = map[string]bool{}
	}
	for name, deferred := range t.deferred {
		switch {
		case deferred && !t.later:
			f.Names[name] = true
		case !deferred && t.later:
			f.Except[name] = true
		}
	}
	if !t.later && len(f.Names) == 0 {
		return nil
	}
	f.Except[chosen] = true
	return f
}

// toolsetOf returns the toolset of a server; nil: it has none.
func (st *serverTools) toolsetOf(server string) *mcpToolset {
	i := slices.IndexFunc(st.toolsets, func(t mcpToolset) bool { return t.server == server })
	if i < 0 {
		return nil
	}
	return &st.toolsets[i]
}

// filter returns the filter of the toolset; nil: every tool is offered.
func (t *mcpToolset) filter() *hosted.Filter {
	f := &hosted.Filter{}
	// An empty map allows no tool; nil allows every one.
	if t.off {
		f.Names = map[string]bool{}
	}
	for name, enabled := range t.enabled {
		switch {
		case enabled && t.off:
			f.Names[name] = true
		case !enabled && f.Except == nil:
			f.Except = map[string]bool{name: true}
		case !enabled:
			f.Except[name] = true
		}
	}
	if f.Names == nil && f.Except == nil {
		return nil
	}
	return f
}

// ReadServers reads mcp_servers. Without the loopback listener no server is called.
func (r *Reader) ReadServers(v jsontext.Field) *apierror.Error {
	if !r.offer.Runs() {
		r.ignored.Add(v.Path)
		return nil
	}
	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= r.rc.Limits.Tools {
			return apierror.Invalid("mcp_servers", "The request has more than %d MCP servers.", r.rc.Limits.Tools)
		}
		return r.readMCPServer(v)
	})
}

func (r *Reader) readMCPServer(at jsontext.Field) *apierror.Error {
	s := mcpServer{at: at, enabled: true}

	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type":
			if v.Str != "url" {
				err = apierror.Invalid(v.Path, "The type of an MCP server must be url.")
			}
		case "name":
			s.name, err = v.ShortText()
		case "url":
			s.url, err = v.Text()
		case "authorization_token":
			if v.Type != gjson.Null {
				s.token, err = v.Text()
			}
		case "tool_configuration":
			if v.Type != gjson.Null {
				err = s.readConfiguration(v, r.ignored)
			}
		default:
			r.ignored.Add(v.Path)
		}
		return err
	})

	r.served.defined = append(r.served.defined, s)
	return err
}

// readConfiguration reads {"enabled":…,"allowed_tools":[…]}.
func (s *mcpServer) readConfiguration(at jsontext.Field, ignored *jsontext.Ignored) *apierror.Error {
	return at.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch {
		case v.Type == gjson.Null:
		case key == "enabled":
			return v.SetSwitch(&s.enabled)
		case key == "allowed_tools":
			s.allowed = &hosted.Filter{Names: map[string]bool{}}

			return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
				if i == hosted.MaxNames {
					return apierror.Invalid(v.Path,
						"The field allowed_tools names more than %d tools. Leave some out.", hosted.MaxNames)
				}
				name, err := v.Text()
				s.allowed.Names[strings.Clone(name)] = true
				return err
			})
		default:
			ignored.Add(v.Path)
		}
		return nil
	})
}

// api is how this API defines servers.
var api = hosted.API{
	Label: "name", URL: "url", Token: "authorization_token", Container: "container_",
	Shown: func(name string, _ *harmony.Tool) string { return name },
}

// findServer finds an MCP server: the configured one of its name, or one that the
// configuration lets requests name.
func (r *Reader) findServer(s *mcpServer) *apierror.Error {
	d := hosted.Definition{
		At: s.at.Path, Label: s.name, URL: s.url, Token: s.token, Allowed: s.allowed, Off: !s.enabled,
	}
	// A toolset is the newer form of tool_configuration, and counts where both are sent.
	if t := r.served.toolsetOf(s.name); t != nil {
		d.Allowed = cmp.Or(t.filter(), d.Allowed)
		if len(r.offer.Searches) > 0 {
			d.Later = t.filterLater(r.chosen)
		}
	}

	// Clients of this API have to send a url, also of a server that the operator has configured.
	if configured, ok := r.offer.Configured(s.name); ok && configured.URL == d.URL {
		d.URL = ""
	}
	return r.offer.AddServer(&d)
}
