// Package request is a request for a message, once it has been read: what is between the
// reading of a body and the writing of the reply.
//
// A [Request] is data. Package read makes it, package write answers it, and neither knows
// the other. Where servers have to list their tools first it has a [Preflight] and no model
// call yet:
//
//	read     → Request{Preflight: {Unlisted, Prepare}}
//	write      asks Unlisted for their tools, then runs the job Prepare
//	Prepare  → Prepared{Turn, Tools}, with which [Request.Begin] completes the request
//
// The package knows no JSON and no events, and does no I/O.
package request

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Request is a request for a message that has been read.
type Request struct {
	// Context is the request's.
	Context *turn.RequestContext

	// Turn is the first turn; nil until the preflight is complete. Preflight is nil where the
	// model can be called at once.
	Turn      *turn.Turn
	Preflight *Preflight

	// What the reply repeats of the request, and what has no effect.
	ID            string
	Model         string
	IgnoredFields []string
	Options       Options
	// Compared is the message whose prompt this one is compared with; "": none.
	Compared string

	// MaxTokens is the limit as requested, of all model calls together; 0: none. Corrects is
	// that the model has another turn to correct calls of unknown tools, BegunMessage that
	// the reply goes on with the last message, and has one model call.
	MaxTokens    int
	Corrects     bool
	BegunMessage bool

	// Tools are those that run here, and what the reply has to know of the others.
	Tools toolset.Called

	// Compacts is that the reply is a compaction. Prepares is that the message is empty: the
	// model call is for the engine's cache alone.
	Compacts bool
	Prepares bool
}

// Options is the fields of the request that concern the reply.
type Options struct {
	Stream      bool
	Thinking    Visibility
	Diagnostics bool // the message says how its prompt extends the one before
}

// Visibility is how a reply shows the model's reasoning.
type Visibility uint8

// The ways to show reasoning.
const (
	Hidden  Visibility = iota // not at all
	Omitted                   // as thinking blocks with a signature and without text
	Shown                     // as thinking blocks
)

// Preflight is what a reply does before its first model call.
type Preflight struct {
	// Unlisted are the servers that list their tools.
	Unlisted []*hosted.Server
	// Prepare is the job that follows. It offers the tools and makes the prompt. Its result is
	// a *Prepared. It runs once.
	Prepare api.Job
}

// Prepared is the first turn of a request, and its tools once all of them are known.
type Prepared struct {
	Turn  *turn.Turn
	Tools toolset.Called
}

// Begin gives the request its first turn: from here on it is one whose model call is known. What
// its Info is made of stays as it is.
func (r *Request) Begin(p *Prepared) { r.Turn, r.Tools, r.Preflight = p.Turn, p.Tools, nil }

// Engine returns the first model call; nil where a step of the reply comes before it.
func (r *Request) Engine() *engine.Request {
	if r.Turn == nil {
		return nil
	}
	return r.Turn.Engine
}

// Affinity returns the keys by which the engine's replica is chosen, once there is a
// model call.
func (r *Request) Affinity() turn.Affinity {
	if r.Turn == nil {
		return turn.Affinity{}
	}
	return r.Turn.Affinity()
}

// RoutingInfo returns the description for endpoint pickers and access logs, once there
// is a model call.
func (r *Request) RoutingInfo() turn.RoutingInfo {
	if r.Turn == nil {
		return turn.RoutingInfo{}
	}
	return r.Turn.RoutingInfo()
}

// Bytes is about how many bytes are kept until the reply has ended.
func (r *Request) Bytes() int { return r.Turn.Bytes() + r.Tools.Bytes() }

// Ignored returns the names of the fields that are accepted and have no effect, in
// the order of the request, such as service_tier or tools.web_search_20250305.
func (r *Request) Ignored() []string { return r.IgnoredFields }
