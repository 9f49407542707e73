// Package toolset is the tools of a request for a message: the client's own, those that run
// here, and what the conversation changes of them.
//
// A [Reader] is fed while the body is read, member by member and in any order:
//
//	tools, tool_choice, mcp_servers, container   → ReadTools, ReadChoice, ReadServers, ReadContainer
//	blocks that refer to tools, or change them    → Join makes an item of the conversation, whose
//	                                                tools the [Joining] gathers (Refers, ReadChange)
//
// Servers, searches and what they find go into a [hosted.Offer], which is the same in all APIs.
// Which names are tools, and whose, is known only at the end. Finish finds the servers, the
// reply lets those that are Unlisted list their tools, and then Offer gives the turn's input its
// tools, and each item what joins there:
//
//	definitions ─┐                 ┌→ Input.Tools, Builtins, Deferred, Choice
//	servers     ─┼→ Finish → Offer ┼→ Items of the kind Tools, and what the model is told there
//	joinings    ─┘                 └→ Settle: [Called], what the reply needs
//
// [Called] is for the reply: which calls are made here, what a search finds, which tools were
// withdrawn.
//
// The package does no I/O: servers list their tools as jobs of the reply. It knows neither the
// rest of a request nor replies.
package toolset

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Reader reads the tools of a request, and offers them to the model.
type Reader struct {
	rc *turn.RequestContext

	// Where what is read goes.
	input   *turn.Input
	ignored *jsontext.Ignored

	// The servers and built-in tools, the searches that run here, and the tools that are offered
	// once the conversation refers to them, or a search finds them.
	offer hosted.Offer
	// unsearchable is that a search cannot run here.
	unsearchable bool

	// The client's tools that are offered from the beginning. Of deferred ones: whether they are
	// strict, and the names that several of them have.
	tools  []harmony.Tool
	strict map[string]turn.Strictness
	twice  []string
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
func NewReader(
	config hosted.Config, rc *turn.RequestContext, input *turn.Input, ignored *jsontext.Ignored,
) Reader {
	return Reader{offer: hosted.NewOffer(&api, config, rc), rc: rc, input: input, ignored: ignored}
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
func (r *Reader) Unlisted() []*hosted.Server { return r.offer.Unlisted(r.input, nil) }

// RunsHere reports whether the filter runs tools of the request, or searches for them.
func (r *Reader) RunsHere() bool { return len(r.offer.Servers)+len(r.offer.Searches) > 0 }

// Called is what the reply has to know of the tools of a request.
type Called struct {
	// MaxSearches is the most searches of the web; 0: any number. The search for tools is known once
	// the tools are listed.
	hosted.Called
	MaxSearches int

	// Withdrawn are the tools that the conversation has withdrawn; nil: there are none, or tools
	// are not listed yet.
	Withdrawn map[turn.ToolName]bool
	// Changes is what the conversation has changed of the tools, for a compaction: blocks,
	// separated by commas.
	Changes []byte
}

// Called returns the tools that the filter runs, once Finish has found the servers.
func (r *Reader) Called() Called {
	return Called{Called: r.offer.Called(r.served.container), MaxSearches: r.served.maxSearches}
}

// Settle adds what only Offer has shown.
func (r *Reader) Settle(c *Called) {
	c.Search, c.Withdrawn, c.Changes = r.search(), r.input.Withdrawn, r.changes
}

// Bytes is about how many bytes of the client's are kept.
func (c *Called) Bytes() int { return c.Search.Bytes() + len(c.Changes) }

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
