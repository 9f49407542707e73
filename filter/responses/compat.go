package responses

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// In Codex compatibility mode everything from a user's message to the final
// answer is one response. A request that gives a stored response's calls their
// outputs goes on under the response's id, and the store's record of it, one a
// turn, is written anew as the next version: what it had becomes its input, its
// output is what is new. docs/codex.md has the rules.

// compat is what the mode knows of a request.
type compat struct {
	outputs map[string]gjson.Result // of tools, in the request, by call_id
	empty   map[string]bool         // of these, those that are empty because their calls stand there without one
	turn    *storedTurn             // of the previous response; nil: there is none that could go on
	goesOn  bool                    // the request goes on with that turn
}

// DecodeCodex is [API.Decode] in Codex compatibility mode. A call that it gives
// may be one that has been answered: see [Call.Again].
func (a *API) DecodeCodex(ctx context.Context, body []byte, scope *turn.Scope) (*Call, *apierror.Error) {
	d := a.newDecoder(scope)
	d.compat = &compat{}
	return d.decode(ctx, body)
}

// storedTurn is a turn as far as it is stored.
type storedTurn struct {
	*store.Response
	ids     map[string]bool         // of its items
	calls   map[string]bool         // call_ids of its calls
	waiting map[string]bool         // of these, those without an output
	outputs map[string]gjson.Result // of the others
	latest  []store.Item            // what the request for its newest output added
	said    map[string]bool         // what these say, without their ids; nil: not known yet
}

// readTurn reads what a response has.
func readTurn(r *store.Response) *storedTurn {
	t := &storedTurn{Response: r, ids: map[string]bool{}, calls: map[string]bool{}, waiting: map[string]bool{}, outputs: map[string]gjson.Result{}}
	begin := 0 // of the latest items
	for i, item := range r.Input {
		if t.add(item) {
			begin = i + 1
		}
	}
	t.latest = r.Input[begin:]
	for _, item := range r.Output {
		t.add(item)
	}
	return t
}

// add adds an item and tells whether it is one of the model's.
func (t *storedTurn) add(item store.Item) (models bool) {
	t.ids[item.ID] = true
	v := gjson.ParseBytes(item.JSON)
	id := v.Get("call_id").Str
	switch toolRole(v.Get("type").Str) {
	case toolCall:
		t.calls[id] = true
		t.waiting[id] = v.Get("status").Str != statusIncomplete
		return true
	case toolResult:
		delete(t.waiting, id)
		t.outputs[id] = v.Get("output")
	}
	return v.Get("type").Str == "reasoning" || v.Get("role").Str == "assistant"
}

// What an item is to a tool.
const (
	toolCall = iota + 1
	toolResult
)

func toolRole(itemType string) int {
	switch itemType {
	case "function_call", "custom_tool_call":
		return toolCall
	case "function_call_output", "custom_tool_call_output":
		return toolResult
	}
	return 0
}

// sameOutput tells whether two outputs of a tool are the same JSON.
func sameOutput(a, b gjson.Result) bool {
	return bytes.Equal(jsontext.AppendCompact(nil, a.Raw), jsontext.AppendCompact(nil, b.Raw))
}

// findOutputs notes the outputs that the request gives. A call that stands in
// it as completed has an empty one unless it has another.
func (d *decoder) findOutputs() {
	c := d.compat
	c.outputs, c.empty = map[string]gjson.Result{}, map[string]bool{}
	d.given.ForEach(func(_, v gjson.Result) bool {
		if toolRole(v.Get("type").Str) == toolResult && v.Get("output").Exists() {
			c.outputs[v.Get("call_id").Str] = v.Get("output")
		}
		return true
	})
	d.given.ForEach(func(_, v gjson.Result) bool {
		id := v.Get("call_id").Str
		if _, has := c.outputs[id]; !has && toolRole(v.Get("type").Str) == toolCall && v.Get("status").Str == statusCompleted {
			c.outputs[id], c.empty[id] = gjson.Parse(`""`), true
		}
		return true
	})
}

// continueTurn finds out what the request does to the turn of the previous
// response: it goes on with it, or follows it, or is one that the turn has
// answered. Then it gives the answer.
func (d *decoder) continueTurn(ctx context.Context) (*Call, *apierror.Error) {
	c := d.compat
	if c == nil || !d.given.IsArray() {
		return nil, nil
	}
	d.findOutputs()
	if d.previous == "" || d.options.background || !d.stores() {
		return nil, nil
	}
	r, err := current(ctx, d.api.Store, d.scope.Tenant, d.previous)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil // reading the chain tells
	case err != nil:
		return nil, storeDown(err)
	case r.Live || r.Conversation != "":
		return nil, nil
	}
	c.turn = readTurn(r)
	for id, output := range c.outputs {
		if known, has := c.turn.outputs[id]; has && !c.empty[id] && !sameOutput(known, output) {
			return nil, turnConflict(d.previous)
		}
		c.goesOn = c.goesOn || c.turn.waiting[id]
	}
	if c.goesOn {
		return nil, d.checkWait()
	}
	return d.answered()
}

// turnConflict is the answer to a request that is not what the turn has gone on
// with.
func turnConflict(id string) *apierror.Error {
	return apierror.New(http.StatusConflict, "response_conflict", "previous_response_id",
		"The response %q has gone on with other tool outputs. Read it to see how it stands.", clip(id))
}

// turnGone is the answer to a request that has gone on with a turn that is not
// stored any more when the reply ends.
func turnGone(id string) *apierror.Error {
	return apierror.New(http.StatusNotFound, "previous_response_not_found", "previous_response_id",
		"The response %q was deleted, or has aged, while it went on. Send the whole conversation as input.", clip(id))
}

// checkWait refuses a turn that has waited too long for its tools.
func (d *decoder) checkWait() *apierror.Error {
	r := d.compat.turn
	var since int64 // the latest of the times that it has
	for _, at := range gjson.GetManyBytes(r.Object, "created_at", "completed_at", stoppedAt) {
		since = max(since, at.Int())
	}
	if d.scope.Now().Sub(time.Unix(since, 0)) <= d.api.ToolTimeout {
		return nil
	}
	return apierror.New(http.StatusNotFound, "previous_response_not_found", "previous_response_id",
		"The response %q has waited for its tools' outputs for longer than %s. Send the whole conversation as input.", clip(r.ID), d.api.ToolTimeout)
}

// answered gives the answer to a request that repeats the turn's newest one,
// nil if it has anything new.
func (d *decoder) answered() (*Call, *apierror.Error) {
	t := d.compat.turn
	if len(d.compat.outputs) == 0 || len(t.latest) == 0 {
		return nil, nil
	}
	anything := false
	err := d.given.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		it, err := readItem(v)
		anything = anything || !t.has(&it) && !t.repeats(&it)
		return err
	})
	if err != nil || anything {
		return nil, err
	}
	for _, item := range t.latest {
		if id := gjson.GetBytes(item.JSON, "call_id").Str; id != "" && !sameOutput(t.outputs[id], d.compat.outputs[id]) {
			return nil, turnConflict(t.ID)
		}
	}
	return &Call{id: t.ID, model: d.input.Engine.Model, options: d.options, ignored: d.ignored, scope: d.scope, again: t.Response}, nil
}

// has tells whether the turn has an item of a request.
func (t *storedTurn) has(it *item) bool {
	switch toolRole(it.kind) {
	case toolCall:
		return t.calls[it.callID]
	case toolResult:
		_, has := t.outputs[it.callID]
		return has
	}
	return it.id != "" && t.ids[it.id]
}

// repeats tells whether an item without an id says what one of the latest items
// says.
func (t *storedTurn) repeats(it *item) bool {
	if t.said == nil {
		t.said = make(map[string]bool, len(t.latest))
		for _, known := range t.latest {
			id := jsontext.AppendString([]byte(`,"id":`), known.ID)
			t.said[string(bytes.Replace(known.JSON, id, []byte(`,"id":""`), 1))] = true
		}
	}
	return it.id == "" && t.said[string(it.appendStored(nil, ""))]
}

// addCompat adds an item of the input as the mode has it, and tells whether that
// is all there is to do: what the turn has is not added again, and a call that
// needs it gets an empty output.
func (d *decoder) addCompat(it *item) (done bool, err *apierror.Error) {
	c := d.compat
	if c == nil {
		return false, nil
	}
	known := c.turn != nil && c.turn.has(it)
	if toolRole(it.kind) != toolCall || !c.empty[it.callID] {
		return known, nil
	}
	if known && !c.turn.waiting[it.callID] {
		return true, nil
	}
	if !known {
		d.keep(it)
		err = d.addItem(*it)
	}
	if err == nil {
		err = d.addEmptyOutput(it)
	}
	return true, err
}

// addEmptyOutput adds an empty output of a call.
func (d *decoder) addEmptyOutput(call *item) *apierror.Error {
	text := jsontext.AppendString([]byte(`{"type":"`+call.kind+`_output","call_id":`), call.callID)
	output, err := readItem(jsontext.Field{Result: gjson.ParseBytes(append(text, `,"output":""}`...)), Path: call.at.Path})
	if err != nil {
		return err
	}
	d.keep(&output)
	return d.addItem(output)
}

// asTurn makes the call go on with the turn, if it does: under its id, with its
// beginning as the input.
func (d *decoder) asTurn(c *Call) *Call {
	if d.compat == nil || !d.compat.goesOn {
		return c
	}
	t := d.compat.turn
	c.id, c.previous, c.created = t.ID, t.Previous, gjson.GetBytes(t.Object, "created_at").Int()
	c.continued = continued(t.Object)
	c.version = t.Version
	c.input = slices.Concat(t.Input, withoutCut(t.Output), c.input)
	return c
}

// ownEnd tells whether a reply has come to its own end. Another leaves a turn
// that it goes on with as it was: the client can send its request again.
func (e *ending) ownEnd() bool { return e.status == statusCompleted || e.status == statusIncomplete }

// Continues tells whether the call goes on with a response under its id.
func (c *Call) Continues() bool { return c.version > 0 }

// Again gives the answer to a call that has been answered before, as a stream
// or as an object; no model is asked. ok is false if it has not.
func (c *Call) Again() (object []byte, stream *Replay, ok bool) {
	switch {
	case c.again == nil:
		return nil, nil, false
	case c.options.stream:
		return nil, &Replay{sse: c.replay()}, true
	}
	return appendObject(nil, c.again), nil, true
}

// Replay is a stream that has ended.
type Replay struct{ sse []byte }

// Next gives the whole stream.
func (r *Replay) Next(context.Context) (sse []byte, end bool, err *apierror.Error) {
	return r.sse, true, nil
}

// Fail is never needed.
func (r *Replay) Fail(*apierror.Error) []byte { return nil }

// replay writes the events of the stored response: its newest items, each with
// its text in one piece.
func (c *Call) replay() []byte {
	r := &Reply{call: c, delta: -1}
	begun := c.again.Object
	for _, m := range []struct{ name, value string }{
		{"status", `"` + statusInProgress + `"`}, {"completed_at", "null"}, {"incomplete_details", "null"}, {"error", "null"}, {"usage", "null"},
	} {
		if changed, err := sjson.SetRawBytes(begun, m.name, []byte(m.value)); err == nil { // it is an object, so it can be changed
			begun = changed
		}
	}
	for _, step := range []string{"created", "in_progress"} {
		r.writeStored(step, &store.Response{Object: begun})
	}
	end := ending{status: gjson.GetBytes(c.again.Object, "status").Str}
	for _, item := range c.again.Output {
		r.writeStoredItem(item, end.ownEnd())
	}
	r.writeStored(lastEvent(end.status), c.again)
	return append(r.dst, "data: [DONE]\n\n"...)
}

// writeStored writes an event that has a whole response.
func (r *Reply) writeStored(step string, response *store.Response) {
	r.beginEvent("response.", step)
	r.dst = appendObject(append(r.dst, `,"response":`...), response)
	r.endEvent()
}

// writeStoredItem writes the events of an item. As in the first stream, one that
// is incomplete has its end only where the response came to its own.
func (r *Reply) writeStoredItem(item store.Item, ownEnd bool) {
	v := gjson.ParseBytes(item.JSON)
	it := &outputItem{id: item.ID, summary: len(v.Get("summary").Array()) > 0}
	text := v.Get("content.0.text").Str
	switch v.Get("type").Str {
	case "reasoning":
		it.kind = reasoningItem
	case "function_call":
		it.kind, text = functionItem, v.Get("arguments").Str
	case "custom_tool_call":
		it.kind, text = customItem, v.Get("input").Str
	case "message":
		it.kind = answerItem
		if v.Get("phase").Str == "commentary" {
			it.kind = commentaryItem
		}
	default: // what a tool did here is told in one piece
		r.place(it)
		r.made[it.slot].json = shown(item)
		r.writeMade(it, ".added")
		r.writeMade(it, ".done")
		return
	}
	if it.kind == functionItem || it.kind == customItem {
		it.call = &turn.CalledTool{ID: v.Get("call_id").Str, Namespace: v.Get("namespace").Str, Name: v.Get("name").Str}
	}
	r.item = it
	r.place(it)
	r.made[it.slot].json = shown(item)
	r.writeItemStart()
	r.addText([]byte(text))
	r.closeDelta()
	if ownEnd || v.Get("status").Str != statusIncomplete {
		r.writeItemEnd(it)
	}
	r.item = nil
}
