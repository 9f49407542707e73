package messages

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply has several model calls in two cases. If the model calls nothing but tools
// that the filter runs, it goes on with their results, which the client sees. If it
// calls tools that the request does not have, and the model's settings say so or the
// request has tools that the filter runs, it is told, and the client sees neither the
// call nor its result.

// turns is the state of a reply that can have more than one turn.
type turns struct {
	current *turn.Turn
	count   int    // turns so far, with the current one
	unknown int    // calls of unknown tools in the current turn
	parts   []part // what the model has generated in the current turn

	cut string // the stop_reason of a reply that ends before its next turn; "": none

	earlierPrompts int          // tokens of the prompts of the earlier turns
	earlierCached  int          // of these, those that the engine had in its cache
	earlier        turn.Summary // of the earlier turns
}

// part is a part of a turn's output so far, or the result of a call.
type part struct {
	item turn.Item
	text []byte
}

// items returns the parts of the current turn as items of the conversation.
func (t *turns) items() []turn.Item {
	items := make([]turn.Item, len(t.parts))
	for i, p := range t.parts {
		items[i] = p.item
		items[i].Text += string(p.text)
	}
	return items
}

// promptTokens returns the number of tokens of the prompts so far.
func (r *Reply) promptTokens() int {
	return r.turns.earlierPrompts + r.turns.current.PromptTokens()
}

// nextTurn begins the turn in which the model has the results of its calls, and returns
// its model call; nil if the reply has no further turn.
func (r *Reply) nextTurn() (*engine.Request, *apierror.Error) {
	t := &r.turns
	switch answered := t.unknown + r.runs.count; {
	case answered == 0, r.reader.Calls() != answered, r.reader.Finish() == turn.FinishLength:
		return nil, nil
	case !r.repeats():
		t.cut = "pause_turn"
		return nil, nil
	}
	room := r.request.maxTokens
	if room > 0 {
		if room -= t.earlier.Counts.Output + r.reader.Counts().Output; room <= 0 {
			t.cut = "max_tokens"
			return nil, nil
		}
	}
	next, err := t.current.Continue(t.items(), room)
	if err != nil && err.Code == "context_length_exceeded" && r.runs.count > 0 { // what the tools have done stays
		t.cut = "model_context_window_exceeded"
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.reader.AddTo(&t.earlier)
	t.earlierPrompts += t.current.PromptTokens()
	t.earlierCached += max(r.cached, 0)
	t.unknown, t.parts, r.runs.count, r.cached = 0, nil, 0, engine.Unknown
	t.count++
	r.beginTurn(next)
	return next.Engine, nil
}

// beginTurn begins a turn: what is pushed from now on is its output.
func (r *Reply) beginTurn(t *turn.Turn) {
	r.turns.current = t
	r.reader = t.NewReader(r.event)
	if len(r.request.hosted) > 0 && r.repeats() {
		r.reader.Corrected()
	}
}

// repeats reports whether the model can have another turn after the current one.
func (r *Reply) repeats() bool {
	return (r.request.corrects || len(r.request.hosted) > 0) && !r.request.continues && r.mode == api.Loop && r.turns.count < r.request.rc.Limits.Turns
}

// record adds an event to the parts of the current turn. It reports whether the
// event belongs to a call of an unknown tool, which the client does not see.
func (r *Reply) record(e turn.Event) (unseen bool) {
	if !r.repeats() {
		return false
	}
	unseen = r.request.corrects && e.Kind == turn.Call && e.Call.Namespace == ""
	t := &r.turns
	switch e.Step {
	case turn.Start:
		item := turn.Item{Kind: e.Kind}
		if e.Kind == turn.Call {
			item.CallID, item.Namespace, item.Name, item.Builtin = e.Call.ID, e.Call.Namespace, e.Call.Name, e.Call.Builtin
		}
		t.parts = append(t.parts, part{item: item})
	case turn.Delta:
		last := &t.parts[len(t.parts)-1]
		last.text = append(last.text, e.Text...)
	case turn.End:
		if unseen {
			t.unknown++
			t.parts = append(t.parts, part{item: turn.Item{Kind: turn.Result, CallID: e.Call.ID, Text: turn.NoSuchTool(e.Call.Name), Hosted: true}})
		}
	}
	return unseen
}
