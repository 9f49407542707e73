package turn

import (
	"context"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Continue is the turn that goes on with the reply to this one: items are what
// the model has done since, and what its tools have answered. room is how many
// tokens the reply may still have; 0: as many as the context leaves.
//
// Its prompt is this one's with the items behind it. That a call is required
// holds for a reply's first turn only; the other promises stay. A turn whose
// [Input] had Continue has no next one.
func (t *Turn) Continue(items []Item, room int) (*Turn, *apierror.Error) {
	next := *t
	next.step++
	read, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), readTimeout)
	defer cancel()
	items, fault := t.scope.withKeptReasoning(read, items)
	next.fault = fault
	r := rendering{context.WithoutCancel(t.ctx), &t.scope, t.scope.promptLimit()}
	prompt, err := r.append(slices.Clip(t.Engine.Prompt[:t.asked]), (&Prefix{}).messages(items))
	if err != nil {
		return nil, err
	}
	next.asked = len(prompt)
	if prompt, err = t.scope.complete(prompt); err != nil {
		return nil, err
	}
	request := *t.Engine
	request.ID = t.id + "-t" + strconv.Itoa(next.step+1)
	request.Prompt, request.MaxTokens = prompt, room
	if t.later != nil {
		request.Constraint = nil
		if !t.scope.Checked {
			request.Constraint = t.later.promise.Format()
		}
		next.later, next.kept = nil, t.later.kept
	}
	next.Engine = &request
	return &next, t.scope.budget(&request)
}

// NoSuchTool is what the model is told of a call to a tool that there is not.
func NoSuchTool(name string) string {
	return "There is no tool " + strconv.Quote(name) + ". Call only tools that are listed, by their full names."
}
