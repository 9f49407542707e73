// Package toolset is the tools of a request for a message: the client's own, those that run
// here, and what the conversation changes of them.
//
// A [Reader] is fed while the body is read, member by member and in any order:
//
//	tools, tool_choice, mcp_servers, container   → ReadTools, ReadChoice, ReadServers, ReadContainer
//	blocks that refer to tools, or change them    → Join makes an item of the conversation, whose
//	                                                tools the [Joining] gathers (Refers, ReadChange)
//
// Which names are tools, and whose, is known only at the end. Finish finds the servers, the
// reply lets those that are Unlisted list their tools, and then Offer gives the turn's input its
// tools, and each item what joins there:
//
//	definitions ─┐                 ┌→ Input.Tools, Builtins, Deferred, Choice
//	servers     ─┼→ Finish → Offer ┼→ Items of the kind Tools, and what the model is told there
//	joinings    ─┘                 └→ Settle: [Called], what the reply needs
//
// [Called] is for the reply: which calls are made here, what a [Search] finds, which tools were
// withdrawn.
//
// The package does no I/O: servers list their tools as jobs of the reply. It knows neither the
// rest of a request nor replies.
package toolset

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Config is what the configuration says about tools.
type Config struct {
	// Client calls the tools of MCP servers; nil: requests can have none.
	Client *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string
}

// Reader reads the tools of a request, and offers them to the model.
type Reader struct {
	config Config
	rc     *turn.RequestContext

	// Where what is read goes.
	input   *turn.Input
	ignored *jsontext.Ignored

	// The client's tools: those that are offered from the beginning, and those that are
	// offered once the conversation refers to them, with their names in order, whether they are
	// strict and the names that several of them have.
	tools         []harmony.Tool
	deferred      map[string]harmony.Tool
	deferredNames []string
	strict        map[string]bool
	twice         []string
	// The searches for deferred tools that run here, by name. unsearchable is that one cannot.
	searches     []string
	unsearchable bool
	// toolsets are the client's toolsets, each a namespace.
	toolsets []harmony.Namespace
	// absent are the names of tools that the filter does not run; nil: there are none.
	absent map[string]bool
	// chosen is the tool that tool_choice names; "": none.
	chosen string
	served serverTools

	// The tools that the conversation refers to, and what joins it, by the tools of the items.
	referred map[string]bool
	joinings map[*turn.JoinedTools]*Joining

	// compacts is that the reply is a compaction, which has the changes of tools that the
	// conversation has made.
	compacts bool
	changes  []byte
}

// NewReader returns a reader of a request's tools, which go into input. What has no effect goes
// into ignored.
func NewReader(config Config, rc *turn.RequestContext, input *turn.Input, ignored *jsontext.Ignored) Reader {
	return Reader{config: config, rc: rc, input: input, ignored: ignored}
}

// ForSummary is that the reply is a compaction: no tool has to be called, and the changes of
// tools are noted.
func (r *Reader) ForSummary() { r.compacts, r.chosen = true, "" }

// ContinueIn sets the session in which the conversation's built-in tools have run last, unless
// the request names one.
func (r *Reader) ContinueIn(session string) {
	if !r.served.named {
		r.served.container = session
	}
}

// Finish finds the servers, once all of the request is read, and offers deferred tools for which
// nothing can search.
func (r *Reader) Finish() *apierror.Error {
	if err := r.findServers(); err != nil {
		return err
	}
	r.offerUnsearchable()
	return nil
}

// Unlisted returns the servers that have to list their tools before they are offered.
func (r *Reader) Unlisted() []*hosted.Server {
	if r.input.NoCalls {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.served.servers), func(s *hosted.Server) bool { return s.Known })
}

// RunsHere reports whether the filter runs tools of the request, or searches for them.
func (r *Reader) RunsHere() bool { return len(r.served.servers)+len(r.searches) > 0 }

// Called is what the reply has to know of the tools of a request.
type Called struct {
	// The tools that the filter runs: the most searches, 0: any number; and the session in
	// which the built-in tools of the conversation run.
	Hosted      map[hosted.Space]*hosted.Server
	MaxSearches int
	Container   string

	// Search is the searches for tools; nil: there are none, or tools are not listed yet.
	Search *Search
	// Withdrawn are the tools that the conversation has withdrawn; nil: there are none, or tools
	// are not listed yet.
	Withdrawn map[turn.ToolName]bool
	// Changes is what the conversation has changed of the tools, for a compaction: blocks,
	// separated by commas.
	Changes []byte
}

// containerPrefix begins the ids of containers.
const containerPrefix = "container_"

// Called returns the tools that the filter runs, once Finish has found the servers.
func (r *Reader) Called() Called {
	c := Called{MaxSearches: r.served.maxSearches, Container: r.served.container}
	for _, s := range r.served.servers {
		if c.Hosted == nil {
			c.Hosted = map[hosted.Space]*hosted.Server{}
		}
		c.Hosted[s.Space()] = s
		if s.Builtin != nil && c.Container == "" {
			c.Container = r.rc.NewID(containerPrefix)
		}
	}
	return c
}

// Settle adds what only Offer has shown.
func (r *Reader) Settle(c *Called) {
	c.Search, c.Withdrawn, c.Changes = r.search(), r.input.Withdrawn, r.changes
}

// Bytes is about how many bytes of the client's are kept.
func (c *Called) Bytes() int { return c.Search.bytes() + len(c.Changes) }

// Refers notes that the conversation refers to a tool, and reports whether it is the first
// time: a tool joins where it is found first.
func (r *Reader) Refers(name string) bool {
	if r.referred[name] || len(r.referred) >= r.rc.Limits.Tools {
		return false
	}
	if r.referred == nil {
		r.referred = map[string]bool{}
	}
	r.referred[name] = true
	return true
}

// enforce has the arguments of a tool of the client follow its schema.
func enforce(in *turn.Input, name string) {
	if in.Strict == nil {
		in.Strict = map[turn.ToolName]bool{}
	}
	in.Strict[toolName(name)] = true
}
