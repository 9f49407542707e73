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
// The package is the door to rooms, each of which knows only those before it: package item has what a
// conversation and a reply consist of, request a request as data, toolset the tools of one, kept what the
// model wrote in the store, prompt makes tokens of conversations, and output events of tokens. Their names
// that others need are names of this package too. What all APIs have in their bodies is read by package
// fields, which fills the Input.
//
// The package knows Harmony, and what gpt-oss was trained to do. It knows no JSON of a request, and no
// connection: what it reads from the store it reads through [Memory], in Prepare alone. A Turn and its
// readers do no I/O.
package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Turn is a prepared turn. It is used by one goroutine.
type Turn struct {
	// Engine is the turn's model call.
	Engine *engine.Request

	// Of the request.
	rc              request.Context
	fault           error
	affinity        Affinity
	routing         RoutingInfo
	constraintParam string

	// How the output is read.
	plan output.Plan
	// Where in the prompt the model's own message begins.
	completionStart int
	// What listens to the model call.
	heard heard
}

// heard is what is to be known of a turn's model call beside its output. It is an [output.Listener].
type heard struct {
	// How the prompt is compared with earlier ones.
	diagnosed diagnosed
	// What the engine is asked to keep.
	retained retained
}

// Began implements [output.Listener].
func (h *heard) Began() {
	h.diagnosed.began()
	h.retained.began()
}

// Wrote implements [output.Listener].
func (h *heard) Wrote(tokens []harmony.Token, respelled bool) { h.diagnosed.wrote(tokens, respelled) }

// Called implements [output.Listener].
func (h *heard) Called(id string) { h.retained.called(id) }

// Cached implements [output.Listener].
func (h *heard) Cached(usage *engine.Usage) { h.diagnosed.cached(usage) }

// NewReader returns the reader of one choice. It calls emit with each event, from
// Push and Close.
func (t *Turn) NewReader(emit func(item.Event)) *output.Reader { return t.plan.NewReader(emit) }

// NewWatcher returns the watcher of one choice; nil if the model is never interrupted. A nil
// Turn has none.
func (t *Turn) NewWatcher() *output.Watcher {
	if t == nil {
		return nil
	}
	return t.plan.NewWatcher()
}

// NewCheck begins a check; nil if any output is valid, or the engine enforces the
// spec. A nil Turn has nothing to check.
func (t *Turn) NewCheck() *output.Check {
	if t == nil {
		return nil
	}
	return t.plan.NewCheck()
}

// Budgeted reports whether the turn's reasoning or its repetitions have bounds.
func (t *Turn) Budgeted() bool { return t != nil && t.plan.Budgeted() }

// HasCall reports whether a choice's output so far has a complete tool call, which a
// client may have begun to execute.
func (t *Turn) HasCall(written []harmony.Token) bool { return t.plan.HasCall(written) }

// Bytes is how many of the bytes that were reserved for the turn are kept until the reply has
// ended. A nil Turn keeps none.
func (t *Turn) Bytes() int {
	if t == nil {
		return 0
	}
	return t.plan.Reserved()
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
