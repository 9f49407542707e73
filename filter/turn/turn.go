// Package turn implements one turn of the model for all APIs: a conversation,
// tools and sampling parameters become a token request, and the engine's tokens
// become reasoning, text and tool calls.
//
// An API decodes its request into an [Input]: items, tools, choices and limits, all with the
// client's names. [Prepare] makes a [Turn] of it, with the model call in
// Turn.Engine. Of each choice of the engine's output a [Reader] makes [Event]s, which the API
// turns into its own reply. If the reply goes on, because tools were run, [Turn.Continue]
// returns its next turn. See the example.
//
// Beside the Reader two others look at the same tokens: a [Watcher] may interrupt the model before
// the client sees them, and a [Check] decides whether the output is what the request demands,
// for engines that cannot enforce it.
//
// The package is the door to rooms: package item has what a conversation and a reply consist of, package
// request a request as data. Their names that others need are names of this package too. What all APIs
// have in their bodies is read by package fields, which fills the Input.
//
// The package knows Harmony, and what gpt-oss was trained to do. It knows no JSON of a request, and no
// connection: what it reads from the store it reads through [Memory], in Prepare alone. A Turn and its
// readers do no I/O.
package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Turn is a prepared turn. It is used by one goroutine.
//
// It is large because what Prepare finds out is kept for readers, checks and later turns.
type Turn struct {
	// Engine is the turn's model call.
	Engine *engine.Request

	// Of the request.
	rc       request.Context
	fault    error
	affinity Affinity
	routing  RoutingInfo

	constraintParam string

	// What the output is read with.

	tools    *toolset.Set
	calls    *callRules
	noCalls  bool
	oneCall  bool
	stops    stops
	keepStop bool
	verifier verifier
	watching watchRules
	// Of the following turns; nil: they have the same spec.
	later *laterSpec
	// The header of the message that the reply continues, for the parser, and all of the message
	// that the prompt has.
	prefix []harmony.Token
	begun  []harmony.Token

	// What the turn is within its reply.

	// Of the turn in its reply, from 0.
	number int
	// Where in the prompt the model's own message begins.
	completionStart int
	// What the turn's choice keeps; nil while it goes on, and if it keeps nothing.
	kept *kept.Keep
	// What earlier choices have kept, and is due to be kept on.
	due kept.Renewal
	// How the prompt is compared with earlier ones.
	diagnosed diagnosed
}

// PromptTokens returns how many tokens the prompt has, for the usage of a reply.
func (t *Turn) PromptTokens() int {
	if n := t.rc.PromptTokens; n > 0 {
		return n
	}
	return len(t.Engine.Prompt)
}

// Fault returns why texts of earlier requests could not be read, for the log; nil
// if nothing went wrong. The turn goes on without them.
func (t *Turn) Fault() error { return t.fault }
