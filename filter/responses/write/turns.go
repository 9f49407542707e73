package write

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// beginTurn begins a turn: what is pushed from now on is its output.
func (e *encoder) beginTurn(t *turn.Turn) {
	e.starts(t)
	e.reply.Begin(t)
}

// starts notes that a turn begins, before the machine begins it.
func (e *encoder) starts(t *turn.Turn) {
	e.request.Turn = t
	e.searches = 0

	if d := t.Diagnosis(); d != nil {
		e.diagnosis = d
	}
	if e.messages != nil {
		e.messages.begin(t.Engine.Prompt)
	}
	e.noteShorter(t)
}

// prepareOnly begins the one model call of a request that wants no output.
func prepareOnly(e *encoder, t *turn.Turn) {
	e.starts(t)
	e.reply.BeginUnread(t)
}

// noteShorter notes that the prompt of a turn is shorter than that of the one before with
// its output: the usage could say nothing of what the tools have returned. The turn after
// a compaction is meant to be.
func (e *encoder) noteShorter(t *turn.Turn) {
	if e.reply != nil {
		if calls := e.reply.Calls(); len(calls) == 1 && calls[0].Aside {
			return
		}
	}

	// Of a response that several requests make, the last call of the request before counts too.
	u := e.usage()
	if len(u.turns) == 0 {
		return
	}

	last := u.turns[len(u.turns)-1]
	if n := last.input + last.output - t.PromptTokens(); n > 0 {
		e.note(fmt.Errorf("the prompt of a model call is %d tokens shorter than that of the one before with its "+
			"output: its tool_output_tokens are 0",
			n))
	}
}

// usage is the model calls of the response so far.
func (e *encoder) usage() usage {
	all := usage{turns: e.earlier.turns[:len(e.earlier.turns):len(e.earlier.turns)], earlier: e.earlier.earlier}
	// The first events are written before there is a machine.
	if e.reply == nil {
		return all
	}
	for _, call := range e.reply.Calls() {
		all.turns = append(all.turns, turnUsage{
			input:     call.Prompt,
			cached:    call.Cached,
			output:    call.Output,
			reasoning: call.Reasoning,
		})
	}
	return all
}

// nextTurn returns what the turn is made of in which the model has the results of its
// calls.
func (e *encoder) nextTurn() (reply.NextTurn, *apierror.Error) {
	items, err := e.newItems()
	return reply.NextTurn{Items: items, Take: e.takeTurn}, err
}

// takeTurn begins the turn that follows one; none, without an error, if the context has no room
// for it: what the tools have done stays.
func (e *encoder) takeTurn(next *turn.Turn, err *apierror.Error) (*turn.Turn, *apierror.Error) {
	switch {
	case err == nil:
		e.starts(next)
		return next, nil
	case err.Code == "context_length_exceeded":
		return nil, nil
	}

	return nil, request.OfInput(err)
}

// newItems are the reply's items that the prompt does not have yet.
func (e *encoder) newItems() ([]turn.Item, *apierror.Error) {
	made := e.output.made[e.prompted:]
	e.prompted = len(e.output.made)
	return e.request.Conversation.Items(made)
}
