// Package hosted is what the APIs and package reply share about hosted tools, which the
// filter runs at MCP servers: the servers of a request, which of their tools the model is
// offered and under which names, the jobs that its calls become, and their bounds. It does
// not know how a client names the servers or sees the results: that is the API's.
//
// An API reads a request into an [Offer], with a [Server] for each server and built-in tool, and
// gets back what the reply needs:
//
//	AddServer, AddBuiltin   a definition → a [Server], or the error by the member that is wrong
//	Unlisted                servers list their tools: [List], or [ListJob]s of a reply
//	Tools                   servers → namespaces for the prompt, and what a search has to find
//	Called, Search          the reply: whose call it is, what a [Search] finds
//
// [Server.Job] makes the job of a call. The package does no I/O itself.
package hosted

import (
	"context"
	"errors"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Server is an MCP server whose tools a request offers. The model sees them as a
// namespace with the server's label, or with a built-in tool's name.
type Server struct {
	Label       string // the namespace
	Description string
	Builtin     *Builtin // nil: the client names the server
	MCP         *tools.Server
	Allowed     *Filter // the tools that the request allows; nil: every tool
	Later       *Filter // those that only a search offers; nil: none
	Approval    Approval
	Arguments   []Argument // of a built-in tool

	// Known is that the tools are listed, or need no list; Failure why they could not be
	// listed, "" if nothing failed.
	Known   bool
	Failure string

	// Listed are the tools that the operator allows, and Tools those of them that the request
	// allows. Numbered has the names of listed tools that have a number for the model, with
	// the number.
	Listed   []tools.Tool
	Tools    []tools.Tool
	Numbered map[string]string
}

// Filter selects tools of a server. A tool must meet all of its conditions.
type Filter struct {
	Names    map[string]bool // nil: all
	Except   map[string]bool // names that are left out
	ReadOnly *bool           // by the servers' hints; nil: both kinds
}

// Fits reports whether the filter selects a tool.
func (f *Filter) Fits(t *tools.Tool) bool {
	if f.Names != nil && !f.Names[t.Name] || f.Except[t.Name] {
		return false
	}
	return f.ReadOnly == nil || *f.ReadOnly == gjson.GetBytes(t.Annotations, "readOnlyHint").Bool()
}

// Tool returns the tool of a name, nil if the request has none.
func (s *Server) Tool(name string) *tools.Tool {
	for i := range s.Tools {
		if s.Tools[i].Name == name {
			return &s.Tools[i]
		}
	}
	return nil
}

// Offered returns the tools as the model sees them: those that it was trained with, or
// those that the server has listed.
func (s *Server) Offered() harmony.Namespace {
	if s.Builtin != nil && s.Builtin.Trained != nil {
		return s.Builtin.Trained()
	}

	space := harmony.Namespace{Name: s.Label, Description: s.Description, Tools: make([]harmony.Tool, len(s.Tools))}
	for i, t := range s.Tools {
		space.Tools[i] = harmony.Tool{Name: s.ToModel(t.Name), Description: t.Description, Parameters: t.InputSchema}
	}
	return space
}

// Names returns what the model can call. "" is the namespace itself.
func (s *Server) Names() []string {
	space := s.Offered()
	if len(space.Tools) == 0 && s.Builtin != nil && s.Builtin.Trained != nil {
		return []string{""}
	}
	names := make([]string, len(space.Tools))
	for i, t := range space.Tools {
		names[i] = t.Name
	}
	return names
}

// Callable returns the tools of a name as the model calls them; "": all of the server's.
func (s *Server) Callable(name string) []turn.ToolName {
	var callable []turn.ToolName
	for _, seen := range s.Names() {
		if name == "" || s.ToModel(name) == seen {
			callable = append(callable, turn.ToolName{Namespace: s.Label, Name: seen, Builtin: s.Space().System})
		}
	}
	return callable
}

// Job returns the job of a call that the model has completed, under the server's name
// of the tool; text is what the model wrote. A built-in tool runs in the session.
func (s *Server) Job(call *turn.CalledTool, text, session string) tools.Job {
	job := tools.Job{Server: s.MCP, Tool: call.Name, Arguments: text}
	if s.Builtin == nil {
		return job
	}

	// The server is the request's; a session belongs to a call.
	server := *s.MCP
	server.Session = session
	job.Server = &server
	if call.IsCode() {
		job.Tool, job.Arguments = tools.CodeTool, CodeArguments(text)
	}
	return job
}

// CodeArguments returns the arguments of [tools.CodeTool] for a code.
func CodeArguments(code string) string {
	return string(append(jsontext.AppendString([]byte(`{"code":`), code), '}'))
}

// Space is a namespace of hosted tools, as a call names it.
type Space struct {
	Name   string
	System bool // in the system message
}

// SpaceOf returns the namespace of a call.
func SpaceOf(call *turn.CalledTool) Space { return Space{call.Namespace, call.Builtin} }

// Space returns the server's namespace.
func (s *Server) Space() Space {
	return Space{s.Label, s.Builtin != nil && s.Builtin.System}
}

// fit returns the tools that the operator allows and that can be offered; the error names
// others.
func (s *Server) fit(rc *turn.RequestContext, listed []tools.Tool) ([]tools.Tool, error) {
	if s.MCP.AllowedTools != nil {
		listed = slices.DeleteFunc(slices.Clone(listed), func(t tools.Tool) bool {
			return !slices.Contains(s.MCP.AllowedTools, t.Name)
		})
	}

	return fitTools(rc, listed)
}

// Reuse takes tools that the server has listed for an earlier request. Tools that cannot be
// offered are left out; the error, for the operator, names them.
func (s *Server) Reuse(rc *turn.RequestContext, listed []tools.Tool) error {
	fit, odd := s.fit(rc, listed)
	s.Import(fit)

	return odd
}

// Take takes what came of [Server.List].
func (s *Server) Take(result *tools.Result) {
	if s.Failure = result.Error; s.Failure == "" {
		s.Import(result.Tools)
	}
}

// Import takes the tools that the server has listed for this request, as [Server.List]
// returns them.
func (s *Server) Import(listed []tools.Tool) {
	s.Known, s.Listed, s.Numbered = true, listed, Numbered(listed)
	for i := range s.Listed {
		if t := &s.Listed[i]; s.Allowed == nil || s.Allowed.Fits(t) {
			s.Tools = append(s.Tools, *t)
		}
	}
}

// List has the server list its tools for a request, and returns those that the request and
// the operator allow and that can be offered. The result's cause names others. What servers
// list takes long to read: List is for jobs, and takes steps of the request's work.
func (s *Server) List(ctx context.Context, runner Runner, rc *turn.RequestContext) tools.Result {
	result := runner.Do(ctx, tools.Job{Server: s.MCP})
	if result.Error != "" {
		return result
	}

	// First what the request allows: tools that it leaves out take no steps of it.
	if s.Allowed != nil {
		result.Tools = slices.DeleteFunc(slices.Clone(result.Tools), func(t tools.Tool) bool {
			return !s.Allowed.Fits(&t)
		})
	}
	var odd error
	if result.Tools, odd = s.fit(rc.Within(ctx), result.Tools); odd != nil {
		// It is for the operator alone: the client and the model see no more than the tools that fit.
		result.Cause = errors.Join(result.Cause, odd)
	}

	return result
}

// covers reports whether a list has every tool that the request allows by its name.
func (s *Server) covers(listed []tools.Tool) bool {
	if s.Allowed == nil {
		return true
	}
	for name := range s.Allowed.Names {
		if !slices.ContainsFunc(listed, func(t tools.Tool) bool { return t.Name == name }) {
			return false
		}
	}
	return true
}
