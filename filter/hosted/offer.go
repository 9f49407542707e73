package hosted

import (
	"net/http"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Config is what the configuration says about hosted tools.
type Config struct {
	// Client calls the tools of MCP servers; nil: requests can have none.
	Client *tools.Client
	// Builtins are the labels of the configured servers that implement built-in tools.
	Builtins map[tools.Builtin]string
}

// API is how an API defines servers: what its members are called, for errors, and what it has.
type API struct {
	Label, URL, Token, Headers string
	// Approvals is that clients can be asked before a call.
	Approvals bool
	// Container begins the ids of the sessions of built-in tools.
	Container string
	// Shown is how the API shows a tool of a server that a search has found. name is the server's.
	Shown func(name string, seen *harmony.Tool) string
}

// Offer is the tools of a request beside those that the client runs and the model sees at once:
// servers and built-in tools, searches, and what they find. An API reads its definitions into it.
type Offer struct {
	api    *API
	config Config
	rc     *turn.RequestContext

	// Servers are MCP servers and built-in tools, in the order of the request.
	Servers []*Server
	// Searches are the functions that search for tools.
	Searches []SearchTool
	// Deferred are the tools that only a search offers: the client's, and once the servers have
	// listed theirs those of servers.
	Deferred []Deferred
}

// NewOffer begins to read the tools of a request.
func NewOffer(api *API, config Config, rc *turn.RequestContext) Offer {
	return Offer{api: api, config: config, rc: rc}
}

// Runs reports whether tools run here at all.
func (o *Offer) Runs() bool { return o.config.Client != nil }

// Configured returns the configured server of a label. Runs must hold.
func (o *Offer) Configured(label string) (*tools.Server, bool) { return o.config.Client.Server(label) }

// Has reports whether a server is configured for a built-in tool.
func (o *Offer) Has(name tools.Builtin) bool {
	_, configured := o.config.Builtins[name]
	return configured && o.Runs()
}

// Server returns the server of a label, or that of a built-in tool with its namespace as the
// label; nil: the request has none. builtin is "" for an MCP server.
func (o *Offer) Server(label string, builtin tools.Builtin) *Server {
	for _, s := range o.Servers {
		if s.Label == label && s.name() == builtin {
			return s
		}
	}
	return nil
}

// Same returns the server of the request that has the name of another one; nil: there is none.
func (o *Offer) Same(other *Server) *Server { return o.Server(other.Label, other.name()) }

// name returns the built-in tool that the server implements; "" for an MCP server.
func (s *Server) name() tools.Builtin {
	if s.Builtin == nil {
		return ""
	}
	return s.Builtin.Name
}

// Definition is an MCP server as a request defines it.
type Definition struct {
	At string // where it is in the request

	Label, URL, Description, Token string
	Header                         http.Header
	Allowed, Later                 *Filter
	Approval                       *Approval // nil: the request says nothing

	// Off is that the request does not use it.
	Off bool
}

// AddServer adds an MCP server: without a URL the one that the operator has configured under the
// label, which is trusted; else one of the request's own, if the operator allows its host.
func (o *Offer) AddServer(d *Definition) *apierror.Error {
	if err := o.checkLabel(d); err != nil || d.Off {
		return err
	}

	// The server outlives the body, of which the description is a part.
	s := &Server{Label: d.Label, Description: strings.Clone(d.Description), Allowed: d.Allowed, Later: d.Later}
	var err *apierror.Error
	if s.MCP, err = o.find(d); err != nil {
		return err
	}
	if !o.api.Approvals && s.MCP.Approval {
		return o.invalid(d, o.api.Label,
			"The operator requires approval for calls of the MCP server %q, and this API has no approvals. Leave "+
				"the server out.", jsontext.Clip(d.Label))
	}
	s.Approval = approvalOf(d.Approval, s.MCP)
	if err := o.addHeader(d, s.MCP); err != nil {
		return err
	}

	o.Servers = append(o.Servers, s)
	return nil
}

func (o *Offer) checkLabel(d *Definition) *apierror.Error {
	switch {
	case d.Label == "":
		return o.invalid(d, o.api.Label, "An MCP server has no %s. Give every server one.", o.api.Label)
	case d.Label == turn.FunctionsNamespace:
		return o.invalid(d, o.api.Label,
			"The %s %q is the namespace of the request's own tools. Give the MCP server another one.",
			o.api.Label, d.Label)
	case o.Server(d.Label, "") != nil:
		return o.invalid(d, o.api.Label, "Two MCP servers have the %s %q. Give every server one of its own.",
			o.api.Label, jsontext.Clip(d.Label))
	}
	return nil
}

// find returns the server that a request of a tenant names.
func (o *Offer) find(d *Definition) (*tools.Server, *apierror.Error) {
	client := o.config.Client
	if d.URL != "" {
		if err := client.Allow(d.URL); err != nil {
			return nil, o.invalid(d, o.api.URL, "%s", err)
		}
		return &tools.Server{Label: d.Label, URL: strings.Clone(d.URL), Tenant: o.rc.Tenant}, nil
	}

	server, ok := client.Server(d.Label)
	if !ok {
		return nil, o.invalid(d, o.api.URL,
			"The MCP server %q has no %s, and no server of this %s is configured here. Send its %s.",
			jsontext.Clip(d.Label), o.api.URL, o.api.Label, o.api.URL)
	}
	server.Tenant = o.rc.Tenant
	return server, nil
}

// addHeader adds the request's headers to those of the server. The token takes precedence over
// the header of this name.
func (o *Offer) addHeader(d *Definition, server *tools.Server) *apierror.Error {
	if d.Token != "" {
		// Two values of one header would leave it to the server which of them counts.
		d.Header.Del("Authorization")
		if err := server.AddHeader(http.Header{"Authorization": {"Bearer " + d.Token}}); err != nil {
			return o.invalid(d, o.api.Token, "%s", err)
		}
	}
	if err := server.AddHeader(d.Header); err != nil {
		return o.invalid(d, o.api.Headers, "%s", err)
	}
	return nil
}

// invalid returns the error about a member of a definition.
func (o *Offer) invalid(d *Definition, member, format string, args ...any) *apierror.Error {
	return apierror.Invalid(d.At+"."+member, format, args...)
}

// AddBuiltin adds a built-in tool, which a type of the API means. nil without an error is one
// that no server implements: most clients that send it can do without.
func (o *Offer) AddBuiltin(name tools.Builtin, kind, at string) (*Server, *apierror.Error) {
	b := builtin(name)
	if b == nil || !o.Has(name) {
		return nil, nil
	}
	server, ok := o.config.Client.Server(o.config.Builtins[name])
	if !ok {
		return nil, nil // the configuration has been checked
	}

	// Two versions of a tool are two types, and still one tool to the model.
	if o.Server(b.Namespace, name) != nil {
		return nil, Twice(kind, at)
	}
	server.Tenant = o.rc.Tenant
	s := &Server{Label: b.Namespace, MCP: server, Builtin: b, Known: b.Trained != nil}
	o.Servers = append(o.Servers, s)
	return s, nil
}

// Twice returns the error about a tool of which a request can have one.
func Twice(kind, at string) *apierror.Error {
	return apierror.Invalid(at, "The tool %q is twice among the tools. Send it once.", jsontext.Clip(kind))
}

// Unlisted returns the servers that have to list their tools before these are offered. listed is
// what the conversation has of their lists, by label.
func (o *Offer) Unlisted(in *turn.Input, listed map[string][]tools.Tool) []*Server {
	var unlisted []*Server
	for _, s := range o.Servers {
		if s.Known {
			continue
		}
		if list, ok := listed[s.Label]; ok && s.Builtin == nil && s.covers(list) {
			// What is left out was logged when the tools were listed.
			_ = s.Reuse(o.rc, list)
		} else if !in.NoCalls {
			unlisted = append(unlisted, s)
		}
	}
	return unlisted
}

// Namespaces are what the model is offered of the servers.
type Namespaces struct {
	Tools    []harmony.Namespace
	Builtins []harmony.Namespace // in the system message
	Ignored  []string            // arguments that no tool takes
}

// Tools returns what the model is offered of the servers, as far as their tools are known, and
// notes as Deferred what a search has to find. It may be called once.
func (o *Offer) Tools() (n Namespaces, err *apierror.Error) {
	for _, s := range o.Servers {
		// What limits a tool decides which tools there are, and so comes before they are offered.
		ignored, err := s.Settle()
		if err != nil {
			return n, err
		}
		n.Ignored = append(n.Ignored, ignored...)

		space := s.Offered()
		space.Tools = o.deferLater(s, space)
		switch trained := s.Builtin != nil && s.Builtin.Trained != nil; {
		case len(space.Tools) == 0 && !trained:
		case s.Space().System:
			n.Builtins = append(n.Builtins, space)
		default:
			n.Tools = append(n.Tools, space)
		}
	}
	return n, nil
}

// deferLater defers the tools of a server that only a search offers, and returns the others.
func (o *Offer) deferLater(s *Server, space harmony.Namespace) []harmony.Tool {
	if s.Later == nil {
		return space.Tools
	}

	var now []harmony.Tool
	for i := range space.Tools {
		if !s.Later.Fits(&s.Tools[i]) {
			now = append(now, space.Tools[i])
			continue
		}
		d := Deferred{Namespace: space.Name, About: space.Description, Tool: space.Tools[i]}
		d.Shown = o.api.Shown(s.Tools[i].Name, &d.Tool)
		o.Deferred = append(o.Deferred, d)
	}
	return now
}

// CheckRequired refuses a request that demands a call where there is no tool because a server's
// tools could not be listed.
func (o *Offer) CheckRequired(in *turn.Input) *apierror.Error {
	if !in.Choice.Required || len(in.Builtins) > 0 {
		return nil
	}
	if slices.ContainsFunc(in.Tools, func(space harmony.Namespace) bool { return len(space.Tools) > 0 }) {
		return nil
	}
	return o.Unavailable()
}

// Unavailable returns the error where a call is demanded that no tool can answer: it may be one of
// the first server that has failed. nil: none has.
func (o *Offer) Unavailable() *apierror.Error {
	for _, s := range o.Servers {
		if s.Failure != "" {
			return s.Unavailable("tool_choice")
		}
	}
	return nil
}

// codeUnavailable is the code of an error that says that a tool that has to be called is missing.
const codeUnavailable = "tool_unavailable"

// Unavailable returns the error where the request demands, at a place in it, a call of a server
// that has failed, or that does not have the tool.
func (s *Server) Unavailable(at string) *apierror.Error {
	if s.Failure == "" {
		return apierror.New(http.StatusFailedDependency, codeUnavailable, at,
			"tool_choice asks for a tool of the server %q that it does not have, or that the request does not allow.",
			jsontext.Clip(s.Label))
	}
	return apierror.New(http.StatusFailedDependency, codeUnavailable, at,
		"tool_choice asks for a call, but the tools of the server %q could not be listed: %s",
		jsontext.Clip(s.Label), s.Failure)
}

// Called is what a reply has to know of the tools that run here.
type Called struct {
	Hosted map[Space]*Server
	// Container is the session in which the built-in tools of the conversation run; "": the request
	// has none.
	Container string
	// Search is the searches for tools; nil: there are none.
	Search *Search
}

// Server returns the server of a call; nil: the client makes it, or nobody.
func (c *Called) Server(call *turn.CalledTool) *Server { return c.Hosted[SpaceOf(call)] }

// Called returns the tools that run here. container is the session that the request names, or else
// that of the conversation; "": it has none yet.
func (o *Offer) Called(container string) Called {
	if len(o.Servers) == 0 {
		return Called{}
	}

	c := Called{Hosted: make(map[Space]*Server, len(o.Servers))}
	for _, s := range o.Servers {
		c.Hosted[s.Space()] = s
		if s.Builtin == nil {
			continue
		}
		if container == "" {
			container = o.rc.NewID(o.api.Container)
		}
		c.Container = container
	}
	return c
}
