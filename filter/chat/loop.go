package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply has one model call, with one exception: if the model calls nothing but
// tools that the request does not have, and the model's settings say so, it is
// told and has another turn. The client sees neither the call nor its result.

// turns is the state of a reply that can have more than one turn.
type turns struct {
	current *turn.Turn
	count   int    // turns so far, with the current one
	unknown int    // calls of unknown tools in the current turn
	parts   []part // what the model has generated in the current turn

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

// nextTurn begins the turn in which the model corrects its calls, and returns its
// model call; nil if the reply has no further turn.
func (r *Reply) nextTurn() (*engine.Request, *apierror.Error) {
	c := &r.choices[0]
	if !r.correctable(c) {
		return nil, nil
	}
	room := r.request.maxTokens
	if room > 0 {
		if room -= r.turns.earlier.Counts.Output + c.reader.Counts().Output; room <= 0 {
			r.turns.unknown, c.outOfRoom = 0, true
			return nil, nil
		}
	}
	next, err := r.turns.current.Continue(r.turns.items(), room)
	if err != nil {
		return nil, err
	}
	c.reader.AddTo(&r.turns.earlier)
	r.turns.earlierPrompts += r.turns.current.PromptTokens()
	r.turns.earlierCached += max(r.cached, 0)
	r.cached = engine.Unknown
	r.turns.current, r.turns.unknown, r.turns.parts = next, 0, nil
	r.turns.count++
	c.reader, c.state = next.NewReader(func(e turn.Event) { r.event(c, e) }), generating
	return next.Engine, nil
}

// corrects reports whether the model can have another turn after the current one.
func (r *Reply) corrects() bool {
	return r.request.corrects && r.mode == api.Loop && r.turns.count < r.request.rc.Limits.Turns
}

// correctable reports whether the choice, which has ended, has made nothing but
// calls that the model is to correct.
func (r *Reply) correctable(c *choice) bool {
	return r.turns.unknown > 0 && c.reader.Calls() == r.turns.unknown && c.reader.Finish() != turn.FinishLength
}

// finish returns why the choice ended.
func (c *choice) finish() turn.Finish {
	if c.outOfRoom {
		return turn.FinishLength
	}
	return c.reader.Finish()
}

// record adds an event to the parts of the current turn. It reports whether the
// event belongs to a call of an unknown tool, which the client does not see.
func (r *Reply) record(e turn.Event) (hidden bool) {
	if !r.corrects() {
		return false
	}
	unknown := e.Kind == turn.Call && e.Call.Namespace == ""
	switch e.Step {
	case turn.Start:
		item := turn.Item{Kind: e.Kind}
		if e.Kind == turn.Call {
			item.CallID, item.Namespace, item.Name = e.Call.ID, e.Call.Namespace, e.Call.Name
		}
		r.turns.parts = append(r.turns.parts, part{item: item})
	case turn.Delta:
		last := &r.turns.parts[len(r.turns.parts)-1]
		last.text = append(last.text, e.Text...)
	case turn.End:
		if unknown {
			r.turns.unknown++
			r.turns.parts = append(r.turns.parts, part{item: turn.Item{Kind: turn.Result, CallID: e.Call.ID, Text: turn.NoSuchTool(e.Call.Name), Hosted: true}})
		}
	}
	return unknown
}

// Turn is the turn of the model call being made.
func (r *Reply) Turn() *turn.Turn { return r.turns.current }
