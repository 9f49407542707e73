// Package messages speaks Anthropic's Messages API. [API] has what the operator has configured,
// and [API.Endpoints] answers the requests. The package is the door of some rooms, lowest first:
//
//	names     the ids of calls and the names of searches, which reading and writing share
//	toolset   the tools of a request: the client's, those that run here, searches, changes
//	request   what reading has come to, and writing begins with
//	read      reads the body of a request: JSON to a prepared model call
//	write     writes the reply: the model's output and results of tools to content blocks
//
// read and write do not know each other. A POST /v1/messages goes through read, and becomes a
// [request.Request]. With the services that its reply uses it is a [write.Request], whose reply
// is a state machine without I/O. If servers have to list their tools first, the request has no
// model call yet: its reply begins with a preflight, which makes the prompt.
//
// Tools are the client's, or run here: web_search and code_execution by configured MCP
// servers, and those of mcp_servers. Package hosted knows the servers.
//
// The formats are those of the types of Anthropic's SDKs. docs/compatibility.md lists
// the fields that are rejected, mapped or ignored. A test of read compares the list with its
// tables.
package messages

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/read"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/write"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Fields are the described fields of the objects of a request, by their paths.
func Fields() jsontext.Objects { return read.Fields() }

// API is the Messages API of a service.
type API struct {
	// Sealer seals the signatures of thinking blocks, and search results; nil: they are
	// empty.
	Sealer *seal.Sealer

	// Tools calls the tools of MCP servers; nil: requests can have none.
	Tools *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string
	// SessionTimeout is how long an unused session of a built-in tool lasts.
	SessionTimeout time.Duration

	servers hosted.Runner // replaces Tools in tests
}

// runner returns what calls tools.
func (a *API) runner() hosted.Runner {
	if a.servers != nil {
		return a.servers
	}
	return a.Tools
}

// Decode decodes the body of a request and prepares its first turn, as [read.Reader.Read] does.
// betas are the values of the request's header anthropic-beta.
func (a *API) Decode(
	ctx context.Context, body []byte, rc *turn.RequestContext, betas ...string,
) (*write.Request, *apierror.Error) {
	q, err := a.read(ctx, body, rc, read.Purpose{Betas: betas})
	if err != nil {
		return nil, err
	}
	services := write.Services{Sealer: a.Sealer, Servers: a.runner(), SessionTimeout: a.SessionTimeout}
	return &write.Request{Request: q, Services: services}, nil
}

// read reads the body of a request.
func (a *API) read(
	ctx context.Context, body []byte, rc *turn.RequestContext, purpose read.Purpose,
) (*request.Request, *apierror.Error) {
	reader := read.Reader{
		Sealer: a.Sealer, Servers: a.runner(), Tools: hosted.Config{Client: a.Tools, Builtins: a.Builtins},
	}
	return reader.Read(ctx, body, rc, purpose)
}

var _ api.Request = (*write.Request)(nil)
