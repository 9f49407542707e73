package responses

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// hosted is an MCP server of the request, whose tools are called here. To the
// model they are a namespace with the server's label, or that of a built-in tool.
type hosted struct {
	label       string
	builtin     *builtin // nil: a tool of the type mcp
	description string
	server      *tools.Server
	allowed     *toolFilter // nil: every tool
	approval    approval

	known    bool              // the tools are
	failure  string            // why they are not; "" if nobody has asked in vain
	listed   []tools.Tool      // those that the operator lets requests use
	tools    []tools.Tool      // of these, those that the request wants
	numbered map[string]string // names of listed tools that the model gets with a number, with it
}

// toolFilter is some of a server's tools: those of certain names, those that
// only read, or those that are both.
type toolFilter struct {
	names    map[string]bool // nil: all
	readOnly *bool
}

func (f *toolFilter) fits(t *tools.Tool) bool {
	if f.names != nil && !f.names[t.Name] {
		return false
	}
	return f.readOnly == nil || *f.readOnly == gjson.GetBytes(t.Annotations, "readOnlyHint").Bool()
}

// approval tells which calls the client has to approve.
type approval struct {
	all           bool        // but for those that never need it
	always, never *toolFilter // nil: none
}

func (a *approval) needed(t *tools.Tool) bool {
	switch {
	case a.never != nil && a.never.fits(t):
		return false
	case a.always != nil && a.always.fits(t):
		return true
	}
	return a.all
}

// noHosted says why tools of the type mcp cannot be used.
const noHosted = "MCP servers are not called here: that needs Envoy's loopback listener (the operator sets loopback). Leave the tool out, or offer the server's tools as functions."

// readServer reads a tool of the type mcp.
func (d *decoder) readServer(at jsontext.Field) *apierror.Error {
	if d.api.Tools == nil {
		return apierror.Invalid(at.Path+".type", noHosted)
	}
	given := givenServer{}
	err := at.Fields(func(key string, v jsontext.Field) *apierror.Error { return d.readServerField(&given, key, v) })
	if err != nil {
		return err
	}
	h, err := d.newHosted(at, &given)
	if err != nil {
		return err
	}
	d.hosted = append(d.hosted, h)
	d.echo.addServer(&given, h)
	return nil
}

// givenServer is a tool of the type mcp as the request has it.
type givenServer struct {
	label, url, connector, description, authorization string
	header                                            http.Header
	allowed                                           *toolFilter
	approval                                          *approval
	allowedRaw, approvalRaw                           string
}

func (d *decoder) readServerField(g *givenServer, key string, v jsontext.Field) (err *apierror.Error) {
	switch key {
	case "type":
	case "server_label":
		g.label, err = v.ShortText()
	case "server_url":
		g.url, err = v.Text()
	case "connector_id":
		g.connector, err = v.Text()
	case "server_description":
		g.description, err = v.Text()
	case "authorization":
		g.authorization, err = v.Text()
	case "headers":
		g.header = http.Header{}
		err = v.Entries(func(name string, v jsontext.Field) *apierror.Error {
			value, err := v.Text()
			g.header.Set(strings.Clone(name), strings.Clone(value))
			return err
		})
	case "allowed_tools":
		g.allowedRaw = v.Raw
		g.allowed, err = readToolFilter(v)
	case "require_approval":
		g.approvalRaw = v.Raw
		g.approval, err = readApproval(v)
	default:
		d.ignored.Add(v.Path)
	}
	return err
}

// readToolFilter reads a list of names, or {"tool_names":…,"read_only":…}.
func readToolFilter(v jsontext.Field) (*toolFilter, *apierror.Error) {
	f := &toolFilter{}
	if v.IsArray() {
		err := f.readNames(v)
		return f, err
	}
	return f, v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "tool_names":
			return f.readNames(v)
		case "read_only":
			f.readOnly = new(bool)
			return v.SetSwitch(f.readOnly)
		}
		return apierror.Invalid(v.Path, "A filter of tools has only tool_names and read_only.")
	})
}

func (f *toolFilter) readNames(v jsontext.Field) *apierror.Error {
	f.names = map[string]bool{}
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		name, err := v.Text()
		f.names[strings.Clone(name)] = true
		return err
	})
}

// readApproval reads a word, or {"always":…,"never":…}. What neither names
// needs approval.
func readApproval(v jsontext.Field) (*approval, *apierror.Error) {
	switch v.Str {
	case "always":
		return &approval{all: true}, nil
	case "never":
		return &approval{}, nil
	}
	if !v.IsObject() {
		return nil, apierror.Invalid(v.Path, "The field %q must be \"always\", \"never\", or an object with filters of tools.", v.Path)
	}
	a := &approval{all: true}
	return a, v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "always":
			a.always, err = readToolFilter(v)
		case "never":
			a.never, err = readToolFilter(v)
		default:
			err = apierror.Invalid(v.Path, "require_approval has only always and never.")
		}
		return err
	})
}

// newHosted finds the server: one of the configuration by its label, or one that
// the configuration lets requests name.
func (d *decoder) newHosted(at jsontext.Field, g *givenServer) (*hosted, *apierror.Error) {
	h := &hosted{label: g.label, description: g.description, allowed: g.allowed, approval: approval{all: true}}
	switch {
	case g.label == "":
		return nil, apierror.Invalid(at.Path+".server_label", "An MCP server has no server_label.")
	case g.label == turn.FunctionsNamespace:
		return nil, apierror.Invalid(at.Path+".server_label", "The server_label %q is the namespace of the request's functions. Give the server another one.", g.label)
	case slices.ContainsFunc(d.hosted, func(o *hosted) bool { return o.builtin == nil && o.label == g.label }):
		return nil, apierror.Invalid(at.Path+".server_label", "Two MCP servers have the label %q.", clip(g.label))
	case g.connector != "":
		return nil, apierror.Invalid(at.Path+".connector_id", "Connectors are OpenAI's own. Give the server_url of an MCP server.")
	}
	if g.approval != nil {
		h.approval = *g.approval
	}
	if g.url == "" {
		return h, d.configured(at, g, h)
	}
	if err := d.api.Tools.Allow(g.url); err != nil {
		return nil, apierror.Invalid(at.Path+".server_url", "%s", err)
	}
	h.server = &tools.Server{Label: h.label, URL: strings.Clone(g.url), Tenant: d.scope.Tenant}
	return h, d.addHeader(at, g, h.server)
}

// configured makes h the server of the configuration that has its label. What
// the operator asks for cannot be undone by a request.
func (d *decoder) configured(at jsontext.Field, g *givenServer, h *hosted) *apierror.Error {
	s, ok := d.api.Tools.Server(g.label)
	if !ok {
		return apierror.Invalid(at.Path+".server_url", "The MCP server %q has no server_url, and no server of this label is configured here. Give its server_url.", clip(g.label))
	}
	s.Tenant = d.scope.Tenant
	h.server = s
	switch {
	case s.Approval:
		h.approval = approval{all: true}
	case g.approval == nil:
		h.approval = approval{}
	}
	return d.addHeader(at, g, s)
}

// addHeader adds the request's headers to those of the server. Its authorization
// goes before the header of this name.
func (d *decoder) addHeader(at jsontext.Field, g *givenServer, s *tools.Server) *apierror.Error {
	if g.authorization != "" {
		g.header.Del("Authorization")
		if err := s.AddHeader(http.Header{"Authorization": {"Bearer " + g.authorization}}); err != nil {
			return apierror.Invalid(at.Path+".authorization", "%s", err)
		}
	}
	if err := s.AddHeader(g.header); err != nil {
		return apierror.Invalid(at.Path+".headers", "%s", err)
	}
	return nil
}

// addServer adds a server to the tools that the response has: without what is
// secret of it, which can stand in the path of its address too.
func (e *echo) addServer(g *givenServer, h *hosted) {
	dst := e.tools
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = jsontext.AppendString(append(dst, `{"type":"mcp","server_label":`...), g.label)
	if u, err := url.Parse(g.url); err == nil && g.url != "" {
		dst = jsontext.AppendString(append(dst, `,"server_url":`...), u.Scheme+"://"+u.Host+"/<redacted>")
	}
	if g.description != "" {
		dst = jsontext.AppendString(append(dst, `,"server_description":`...), g.description)
	}
	dst = appendRaw(append(dst, `,"allowed_tools":`...), g.allowedRaw, `null`)
	approval := `"never"`
	if h.approval.all {
		approval = `"always"`
	}
	dst = appendRaw(append(dst, `,"require_approval":`...), g.approvalRaw, approval)
	dst = append(dst, `,"headers":null}`...)
	e.tools = dst
}

// hostedSpace is a namespace of tools that are called here.
type hostedSpace struct {
	name    string
	builtin bool // in the system message
}

func (d *decoder) hostedSpaces() map[hostedSpace]*hosted {
	if len(d.hosted) == 0 {
		return nil
	}
	spaces := make(map[hostedSpace]*hosted, len(d.hosted))
	for _, h := range d.hosted {
		spaces[hostedSpace{h.label, h.builtin != nil && h.builtin.system}] = h
	}
	return spaces
}

// asks tells whether the client has to approve a call.
func (h *hosted) asks(name string) bool {
	if h.builtin != nil {
		return false
	}
	t := h.tool(name)
	return t == nil || h.approval.needed(t)
}

// tool is the tool of a name, nil if the request has none.
func (h *hosted) tool(name string) *tools.Tool {
	for i := range h.tools {
		if h.tools[i].Name == name {
			return &h.tools[i]
		}
	}
	return nil
}

// names is what the model can call: "" is the namespace itself.
func (h *hosted) names() []string {
	space := h.namespace()
	if h.builtin != nil && h.builtin.known != nil {
		if space = h.builtin.known(); len(space.Tools) == 0 {
			return []string{""}
		}
	}
	names := make([]string, len(space.Tools))
	for i, t := range space.Tools {
		names[i] = t.Name
	}
	return names
}

// namespace is the server's tools as the model sees them.
func (h *hosted) namespace() harmony.Namespace {
	space := harmony.Namespace{Name: h.label, Description: h.description, Tools: make([]harmony.Tool, len(h.tools))}
	for i, t := range h.tools {
		space.Tools[i] = harmony.Tool{Name: h.toModel(t.Name), Description: t.Description, Parameters: t.InputSchema}
	}
	return space
}

// hostedChoice is what tool_choice says of a server's tools: one of them, or
// all.
type hostedChoice struct {
	at          string   // where it stands in the request
	builtin     *builtin // nil: the tools of an MCP server
	label, name string
}

// addHostedTools offers the servers' tools to the model, as far as they are
// known.
func (d *decoder) addHostedTools() *apierror.Error {
	for _, h := range d.hosted {
		if h.builtin != nil {
			d.offerBuiltin(h)
		} else if len(h.tools) > 0 {
			d.input.Tools = append(d.input.Tools, h.namespace())
		}
	}
	for _, c := range d.hostedChoices {
		if err := d.allowHosted(c); err != nil {
			return err
		}
	}
	d.hostedChoices = nil
	return d.checkRequired()
}

func (d *decoder) allowHosted(c hostedChoice) *apierror.Error {
	i := slices.IndexFunc(d.hosted, func(h *hosted) bool { return h.builtin == c.builtin && h.label == c.label })
	if i < 0 {
		return apierror.Invalid(c.at, "The server %q of tool_choice is not one of the tools of the request.", clip(c.label))
	}
	before := len(d.input.Choice.Allowed)
	for _, name := range d.hosted[i].names() {
		if c.name == "" || d.hosted[i].toModel(c.name) == name {
			d.input.Choice.Allowed = append(d.input.Choice.Allowed, turn.ToolName{Namespace: c.label, Name: name, Builtin: c.builtin != nil && c.builtin.system})
		}
	}
	if len(d.input.Choice.Allowed) == before {
		if h := d.hosted[i]; h.failure != "" {
			return h.unavailable(c.at)
		}
		return apierror.New(http.StatusFailedDependency, codeUnavailable, c.at, "tool_choice asks for a tool of the server %q that it does not have, or that the request does not allow.", clip(c.label))
	}
	return nil
}

// codeUnavailable is the code of an error that says that a tool that has to be
// called is not there.
const codeUnavailable = "tool_unavailable"

// unavailable is the answer where a call is asked for of a server whose tools could
// not be listed.
func (h *hosted) unavailable(at string) *apierror.Error {
	return apierror.New(http.StatusFailedDependency, codeUnavailable, at, "tool_choice asks for a call, but the tools of the server %q could not be listed: %s", clip(h.label), h.failure)
}

// checkRequired refuses a request that asks for a call where there is no tool
// because a server's could not be listed.
func (d *decoder) checkRequired() *apierror.Error {
	if !d.input.Choice.Required || len(d.input.Builtins) > 0 {
		return nil
	}
	for _, space := range d.input.Tools {
		if len(space.Tools) > 0 {
			return nil
		}
	}
	for _, h := range d.hosted {
		if h.failure != "" {
			return h.unavailable("tool_choice")
		}
	}
	return nil
}

// addList notes the tools of a server that are listed in the conversation
// already: they are not asked for again.
func (d *decoder) addList(it item) *apierror.Error {
	if it.failure.Exists() && it.failure.Type != gjson.Null {
		return nil
	}
	var listed []tools.Tool
	list := jsontext.Field{Result: it.at.Get("tools"), Path: it.at.Path + ".tools"}
	err := list.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= d.scope.Limits.Tools {
			return apierror.Invalid(v.Path, "More than %d tools.", d.scope.Limits.Tools)
		}
		listed = append(listed, tools.Tool{
			Name: strings.Clone(v.Get("name").Str), Description: strings.Clone(v.Get("description").Str),
			InputSchema: rawObject(v.Get("input_schema")), Annotations: rawObject(v.Get("annotations")),
		})
		return nil
	})
	if err == nil {
		d.noteList(strings.Clone(it.server), listed)
	}
	return err
}

// rawObject is a copy of a JSON object, nil if it is none.
func rawObject(v gjson.Result) json.RawMessage {
	if !v.IsObject() {
		return nil
	}
	return json.RawMessage(strings.Clone(v.Raw))
}
