// Package read reads requests for a message: from the bytes of a body to a [request.Request],
// whose first model call is prepared as far as that can be done before the reply begins.
//
// [Reader] is the door. For each body it makes a decoder, which goes through it in this order:
//
//	the fields       a table (fields.go); conversation.go reads the messages, block by block
//	finish           what depends on several fields, and the servers of the tools
//	offer, prepare   the tools, then the prompt: at once, or as the job of the request's
//	                 preflight where servers list their tools first
//
// What is wrong is a 400 that names the field. Whatever a request can make large is bounded
// before it is read. Package toolset reads the tools, and joins those that the conversation
// brings. The package knows nothing of replies and events.
//
// The tables of fields are those of docs/compatibility.md, which a test compares.
package read

import (
	"context"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Reader reads requests for messages. It is safe for concurrent use.
type Reader struct {
	// Sealer opens the signatures of thinking blocks, and search results; nil: they say nothing.
	Sealer *seal.Sealer
	// Tools is what the configuration says about tools, and Servers lets servers list them.
	Tools   hosted.Config
	Servers hosted.Runner
}

// Purpose is what a request is read for, and how.
type Purpose struct {
	// Counts is that only the length of the prompt is asked for, of which a compaction is no part.
	Counts bool
	// Betas are the values of the request's header anthropic-beta.
	Betas []string
}

// interleaved reports whether the model may think between its calls, in every step of a turn:
// the budget is for all of them together. Betas have the date in their names.
func (p Purpose) interleaved() bool {
	return slices.ContainsFunc(p.Betas, func(beta string) bool {
		return strings.HasPrefix(beta, "interleaved-thinking-")
	})
}

// Read reads the body of a request and prepares its first turn. If it rejects the request, the
// error is a 400 that names the field at fault. It keeps no part of body. Like
// [turn.RequestContext.Prepare] it reads from the store and can take seconds, until ctx ends.
func (r Reader) Read(
	ctx context.Context, body []byte, rc *turn.RequestContext, purpose Purpose,
) (*request.Request, *apierror.Error) {
	d := &decoder{
		reader: r, rc: rc, interleaved: purpose.interleaved(),
	}
	d.tools = toolset.NewReader(r.Tools, rc, &d.input, &d.ignored)
	// Errors name calls as the client does, whatever prefix its ids have here.
	d.input.ShownID = d.sentID
	return d.decode(ctx, body, purpose)
}
