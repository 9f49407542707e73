// Package retention decides which tokens of a model call an engine's KV cache is asked to keep, how
// much, and for how long.
//
// A [Call] is what is known of a model call before it is made, and [Call.Directives] what follows
// from it. [Memory] is what is remembered of earlier calls: how long the tools of a session take,
// and which heads have come before. The words are those of vLLM's kv.retain.
//
// An engine is free to do nothing of it, and none of it changes an output. The package does no I/O
// and has no clock.
package retention

import "time"

// MaxPriority is the highest priority, of what an engine drops last.
const MaxPriority = 100

// Released is the priority of what nobody comes back to: the engine drops it first.
const Released = 0

// Directive is about the KV cache of a range of tokens.
type Directive struct {
	// Start and End are the range: the first token of the prompt, and the one after the last. For the
	// Output, whose length nobody knows yet, both are 0.
	Start, End int
	Output     bool
	// Priority is [Released], or up to [MaxPriority].
	Priority int
	// Keep is how long the priority holds; 0 if it is [Released].
	Keep time.Duration
}

// Hints are what an engine is told with a model call.
type Hints struct {
	// Scope is the session: what it keeps another one does not release. Requests that name no session are one
	// with those of the same beginning.
	Scope      string
	Directives []Directive
}

// Call is what is known of a model call before it is made.
type Call struct {
	// Prompt is the number of its tokens. The first Head of them are instructions and tools, and from
	// the token Turn on later prompts go another way once the turn has its answer: the format drops the
	// turn's reasoning then. Turn is Prompt if there is no reasoning yet.
	Prompt, Head, Turn int
	// Shared says that another conversation had the head, or an earlier call of this one.
	Shared bool
	// Tools says that the output may end in calls, after which the conversation comes back.
	Tools bool
	// Choices is the number of outputs.
	Choices int
	// Ends says that no later prompt goes on from this one, as after a compaction.
	Ends bool
	// Pause is how long the session's tools take.
	Pause time.Duration
}

const (
	// headPriority is above all others: a head is of use to every session of a program.
	headPriority = 90
	// soonest is the priority of a conversation that comes back within [MinPause]. Each doubling of the
	// pause is levelStep less: what has to wait twice as long takes twice the room for the same use.
	// Without that the hints are of no use at all in a cache that is much too small: all agents ask for
	// the same, and what is dropped is no longer what was unused for longest.
	soonest   = 80
	levelStep = 10
)

const (
	// headKeep is how long the head of an agent is kept, which each of its calls renews.
	headKeep = 10 * time.Minute
	// leastHalf is how many tokens a half of the history has at least, so that a short one is whole.
	leastHalf = 512
	// MaxDirectives is the most that a call has.
	MaxDirectives = 5
)

// Directives returns what the engine is asked to keep; nil: nothing. They are in the order of the
// tokens, do not overlap, and their priorities fall.
func (c Call) Directives() []Directive {
	// Numbers that contradict one another become an empty range, and no wrong one.
	head := min(max(c.Head, 0), c.Prompt)
	turn := min(max(c.Turn, head), c.Prompt)

	keeps := c.Tools && !c.Ends
	shared := c.Shared && head > 0
	if c.Prompt <= 0 || !shared && !keeps && !c.Ends {
		return nil
	}
	all := make([]Directive, 0, MaxDirectives)

	// A head that nobody else has is worth what the rest is: programs put documents there.
	from := 0
	if shared {
		all = append(all, Directive{End: head, Priority: headPriority, Keep: headKeep})
		from = head
	}

	switch {
	case c.Ends:
		if from < c.Prompt {
			all = append(all, Directive{Start: from, End: c.Prompt, Priority: Released})
		}
		return append(all, Directive{Output: true, Priority: Released})
	case !keeps:
		// Without tools it is a user who comes back, or nobody, and nobody knows when.
		return all
	}

	// Along the prompt the priority falls, since a block is of no use without those before it, but by less
	// than between two sessions: the history, its newer half, what goes with the answer, and the output.
	priority := level(c.Pause)
	cuts := [...]int{from, turn, turn, c.Prompt}
	if turn-from >= 2*leastHalf {
		cuts[1] = from + (turn-from)/2
	}
	for i, end := range cuts[1:] {
		if begin := max(from, cuts[i]); begin < end {
			all = append(all, Directive{Start: begin, End: end, Priority: priority - i, Keep: c.Pause})
		}
	}

	// Of several outputs the conversation goes on with one at most.
	if c.Choices <= 1 {
		all = append(all, Directive{Output: true, Priority: priority - len(cuts) + 1, Keep: c.Pause})
	}
	return all
}

// level returns the priority of a conversation whose tools take so long.
func level(pause time.Duration) int {
	priority := soonest
	for most := 2 * MinPause; pause >= most && most <= MaxPause; most *= 2 {
		priority -= levelStep
	}
	return priority
}
