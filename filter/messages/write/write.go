// Package write writes replies to requests for a message: from the chunks of the engine and the
// results of tools to content blocks, and from blocks to server-sent events or one message.
//
// A [Request] is a request that has been read, with the [Services] that its reply uses. The
// machine of package reply makes the reply, and the encoder here writes each part:
//
//	the preflight      servers list their tools, and the prompt is made (preflight.go)
//	the model's turns  each part is a content block (event.go); arguments become the text of an
//	                   object while they are written (input.go)
//	calls              those that run here are runs of the machine, whose results are blocks
//	                   (runs.go, results.go), and so are searches for tools (search.go)
//	a compaction       the model's summary is the only block (compaction.go)
//	the end            why the reply ended, and the usage (reply.go)
//
// The encoder keeps no more than its wire needs: the open block, and how many there are. The
// package does not know how requests are read, and does no I/O.
package write

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
)

// Services is what replies use beside the engine.
type Services struct {
	// Sealer seals the signatures of thinking blocks, and search results; nil: they are
	// empty.
	Sealer *seal.Sealer
	// Servers calls tools.
	Servers hosted.Runner
	// SessionTimeout is how long an unused session of a built-in tool lasts.
	SessionTimeout time.Duration
}

// Request is a request with what its reply uses. It is an [api.Request].
type Request struct {
	*request.Request
	Services Services
}

// Info returns what is known of the request: the API has no locks, and nothing is made in the
// background.
func (r *Request) Info() api.Info {
	// A ping may come anywhere in a stream.
	return api.Info{ID: r.ID, Stream: r.Options.Stream, KeepAlive: ping}
}
