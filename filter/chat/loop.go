package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply has one model call, unless the model calls nothing but tools that the
// request does not have and is to be told so: then it has another turn. The
// client sees neither such a call nor the answer to it.

// turns is what a reply needs to have more than one.
type turns struct {
	current *turn.Turn   // whose call goes on
	begun   int          // how many have
	unknown int          // calls of the current one to tools that there are not
	said    []part       // what the model has done in it
	prompts int          // tokens of the prompts before the current one's
	past    turn.Summary // of the turns before it
}

// part is a part of a turn, as far as it has been said.
type part struct {
	item turn.Item
	text []byte
}

// items is what has been done in the turn.
func (t *turns) items() []turn.Item {
	items := make([]turn.Item, len(t.said))
	for i, p := range t.said {
		items[i] = p.item
		items[i].Text += string(p.text)
	}
	return items
}

// Next is the reply's next model call, once the answer to the one before it has
// ended; nil if there is none.
func (r *Reply) Next() (*engine.Request, *apierror.Error) {
	if r.turns.begun == 0 {
		r.turns.begun = 1
		return r.call.Engine(), nil
	}
	c := &r.choices[0]
	if !r.goesOn(c) {
		return nil, nil
	}
	room := r.call.maxTokens
	if room > 0 {
		if room -= r.turns.past.Counts.Output + c.reader.Counts().Output; room <= 0 {
			r.turns.unknown, c.outOfRoom, c.finished = 0, true, false
			return nil, nil
		}
	}
	next, err := r.turns.current.Continue(r.turns.items(), room)
	if err != nil {
		return nil, err
	}
	c.reader.AddTo(&r.turns.past)
	r.turns.prompts += len(r.turns.current.Engine.Prompt)
	r.turns.current, r.turns.unknown, r.turns.said = next, 0, nil
	r.turns.begun++
	c.reader, c.finished = next.NewReader(func(e turn.Event) { r.event(c, e) }), false
	return next.Engine, nil
}

// asks tells whether the model is told of its mistakes in the current turn.
func (r *Reply) asks() bool {
	return r.call.corrects && r.turns.begun > 0 && r.turns.begun < r.call.scope.Limits.Turns
}

// goesOn tells whether the turn that has ended is not the last one.
func (r *Reply) goesOn(c *choice) bool {
	return r.turns.unknown > 0 && c.reader.Calls() == r.turns.unknown && c.reader.Finish() != turn.FinishLength
}

// finish is why the choice ended.
func (c *choice) finish() turn.Finish {
	if c.outOfRoom {
		return turn.FinishLength
	}
	return c.reader.Finish()
}

// note notes what the model does, and tells whether that is all: the client is
// not told.
func (r *Reply) note(e turn.Event) bool {
	if !r.asks() {
		return false
	}
	unknown := e.Kind == turn.Call && e.Call.Namespace == ""
	switch e.Step {
	case turn.Start:
		item := turn.Item{Kind: e.Kind}
		if e.Kind == turn.Call {
			item.CallID, item.Namespace, item.Name = e.Call.ID, e.Call.Namespace, e.Call.Name
		}
		r.turns.said = append(r.turns.said, part{item: item})
	case turn.Delta:
		last := &r.turns.said[len(r.turns.said)-1]
		last.text = append(last.text, e.Text...)
	case turn.End:
		if unknown {
			r.turns.unknown++
			r.turns.said = append(r.turns.said, part{item: turn.Item{Kind: turn.Result, CallID: e.Call.ID, Text: turn.NoSuchTool(e.Call.Name), Hosted: true}})
		}
	}
	return unknown
}

// NewCheck checks an answer to the model call being made, nil if it promises
// nothing that the engine does not see to.
func (r *Reply) NewCheck() *turn.Check { return r.turns.current.NewCheck() }
