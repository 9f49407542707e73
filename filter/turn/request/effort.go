package request

import (
	"cmp"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// How much the model reasons is said in three places. They count in this order:
//
//	a switch of the request that turns reasoning off   low, and nothing is shown
//	the last update of the conversation                its effort; none is low, and nothing is shown
//	the effort of the request                          the same
//	the model's default
//
// Harmony has the effort in the first message of the prompt, so that every other effort is
// another prompt from its first tokens on, and nothing of it is in the engine's cache.

// noEffort is the word for low whose reasoning is not shown.
const noEffort = "none"

// effortWords are the efforts of all APIs. The model has low, medium and high.
var effortWords = map[string]harmony.Effort{
	noEffort:  harmony.EffortLow,
	"minimal": harmony.EffortLow,
	"low":     harmony.EffortLow,
	"medium":  harmony.EffortMedium,
	"high":    harmony.EffortHigh,
	"xhigh":   harmony.EffortHigh,
	"max":     harmony.EffortHigh,
}

// EffortOf returns the effort that a word of the APIs means; "" for any other word.
func EffortOf(word string) harmony.Effort { return effortWords[word] }

// SetEffort sets the effort of the request, by one of the words of [EffortOf].
func (in *Input) SetEffort(word string) {
	in.Effort = effortWords[word]
	// Some clients have two fields for it: none wins, as every opt-out does.
	in.NoEffort = in.NoEffort || word == noEffort
}

// EffortUpdates are the efforts that a conversation sets: OpenAI's items of the type
// configuration_update, Anthropic's messages of the system with an output_config. Of any number
// of them only two count. The zero value sets nothing.
type EffortUpdates struct {
	// The last one before the model said anything, and the last one after; "": there is none.
	start, later string
	// The model has said something.
	begun bool
}

// Set notes an effort that holds from here on, one of the words of [EffortOf].
func (u *EffortUpdates) Set(word string) {
	// What is remembered of a conversation keeps the word, and must not keep the request's body.
	word = strings.Clone(word)
	if u.begun {
		u.later = word
	} else {
		u.start = word
	}
}

// Begin notes that the model says something, before the next update.
func (u *EffortUpdates) Begin() { u.begun = true }

// With is the updates of a conversation, followed by those of what continues it.
func (u EffortUpdates) With(next EffortUpdates) EffortUpdates {
	if !u.begun {
		return EffortUpdates{cmp.Or(next.start, u.start), next.later, next.begun}
	}
	return EffortUpdates{u.start, cmp.Or(next.later, next.start, u.later), true}
}

// Last is the effort that counts, as the client wrote it; "": none is set.
func (u EffortUpdates) Last() string { return cmp.Or(u.later, u.start) }

// OptsOut reports whether the effort is low because the request or its conversation wants no
// reasoning.
func (in *Input) OptsOut() bool {
	if last := in.EffortUpdates.Last(); last != "" && !in.OptedOut {
		return last == noEffort
	}
	return in.OptedOut || in.NoEffort
}

// Hides reports whether the reply has no reasoning.
func (in *Input) Hides() bool { return in.OptsOut() || in.HideReasoning }

// Efforts are those of a turn.
type Efforts struct {
	// What the prompt says.
	Head harmony.Effort
	// What the request wants.
	wanted harmony.Effort
}

// Efforts returns the efforts of a turn.
func (rc *Context) Efforts(in *Input) Efforts {
	own := cmp.Or(in.Effort, rc.Model.Effort, harmony.EffortMedium)
	if in.NoEffort {
		own = harmony.EffortLow
	}
	start := cmp.Or(effortWords[in.EffortUpdates.start], own)
	now := cmp.Or(effortWords[in.EffortUpdates.later], start)

	switch {
	// The request says so each time, so that its prompts have one head.
	case in.OptedOut:
		return Efforts{harmony.EffortLow, harmony.EffortLow}
	case rc.Model.EffortUpdates == EffortKeepPrefix:
		return Efforts{start, now}
	}
	return Efforts{now, now}
}

// loweredBudgets are the tokens of reasoning of a model call whose effort is less than its
// prompt says, where the operator has set no budget for that effort. No one has measured them:
// tools/effort does that for an engine. They are to end what goes on far beyond the effort.
var loweredBudgets = map[harmony.Effort]int{harmony.EffortLow: 512, harmony.EffortMedium: 4096}

// OfEffort returns the budget of a turn with these efforts; 0: it has none. An effort that is
// more than the prompt says has no other budget than its own: nothing makes the model reason more.
func (l *ReasoningLimits) OfEffort(e Efforts) int {
	if e.wanted == e.Head || e.wanted == harmony.EffortHigh || e.Head == harmony.EffortLow {
		return l.ByEffort[e.wanted]
	}
	return cmp.Or(l.ByEffort[e.wanted], loweredBudgets[e.wanted])
}
