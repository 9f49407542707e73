package read

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// In Codex compatibility mode everything from a user's message to the final answer
// is one response. A request with the outputs of a stored response's calls continues
// the response under its id. Its record in the store, one a turn, is written anew as
// the next version: what it had becomes its input, its output is what is new.
// docs/codex.md has the rules.

// codexTurn is what the mode knows of a request.
type codexTurn struct {
	// outputs are those of tools in the request, by call_id. empty are the ones that are
	// empty because their calls are sent without one.
	outputs map[string]gjson.Result
	empty   map[string]bool

	// turn is that of the previous response; nil: there is none that could be continued.
	// continues says that the request does so.
	turn      *storedTurn
	continues bool
}

// findOutputs notes the outputs that the request has. A call that it has as
// completed has an empty output unless it has another.
func (d *decoder) findOutputs() {
	c := d.codex
	c.outputs, c.empty = map[string]gjson.Result{}, map[string]bool{}
	d.fields.items.ForEach(func(_, v gjson.Result) bool {
		if item.RoleOf(v.Get("type").Str) == item.ToolOutput && v.Get("output").Exists() {
			c.outputs[v.Get("call_id").Str] = v.Get("output")
		}
		return true
	})

	d.fields.items.ForEach(func(_, v gjson.Result) bool {
		id := v.Get("call_id").Str
		if _, has := c.outputs[id]; !has && item.RoleOf(v.Get("type").Str) == item.ToolCall &&
			v.Get("status").Str == item.StatusCompleted {
			c.outputs[id], c.empty[id] = gjson.Parse(`""`), true
		}
		return true
	})
}

// continueTurn decides what the request is to the turn of the previous response: it
// continues the turn, or follows it, or repeats a request that the turn has
// answered. Then the answer is returned.
func (d *decoder) continueTurn(ctx context.Context) (*Repeated, *apierror.Error) {
	c := d.codex
	if c == nil || !d.fields.items.IsArray() {
		return nil, nil
	}

	// Calls without an output get an empty one also where no turn is continued.
	d.findOutputs()
	if d.fields.previous == "" || d.fields.options.Background || !d.stores() {
		return nil, nil
	}

	r, err := stored.Current(ctx, d.reader.Store, d.rc.Tenant, d.fields.previous)
	switch {
	case errors.Is(err, store.ErrNotFound):
		// Reading the chain fails with the right error.
		return nil, nil
	case err != nil:
		return nil, stored.Unavailable(err)
	case r.Live || r.Conversation != "":
		// A live response has another maker, and one in a conversation adds its items at its end.
		return nil, nil
	}

	c.turn = readTurn(r)
	for id, output := range c.outputs {
		if known, has := c.turn.outputs[id]; has && !c.empty[id] && !sameOutput(known, output) {
			return nil, request.TurnConflict(d.fields.previous)
		}
		// An output that a call waits for continues the turn; others repeat what it has.
		c.continues = c.continues || c.turn.waiting[id]
	}

	if c.continues {
		return nil, d.checkWait()
	}

	return d.repeated()
}

// checkWait refuses a turn that has waited too long for its tools.
func (d *decoder) checkWait() *apierror.Error {
	r := d.codex.turn
	// The turn has waited since the latest of the times that it has.
	var since int64
	for _, at := range gjson.GetManyBytes(r.Object, "created_at", "completed_at", stored.StoppedAt) {
		since = max(since, at.Int())
	}
	if d.rc.Now().Sub(time.Unix(since, 0)) <= d.reader.ToolTimeout {
		return nil
	}
	return request.PreviousNotFound(
		"The response %q has waited for its tools' outputs for longer than %s. Send the whole conversation as input.",
		item.Clip(r.ID), d.reader.ToolTimeout)
}

// repeated is the answer to a request that repeats the turn's newest one; nil if the
// request has anything new.
func (d *decoder) repeated() (*Repeated, *apierror.Error) {
	t := d.codex.turn
	if len(d.codex.outputs) == 0 || len(t.latest) == 0 {
		return nil, nil
	}

	// Clients send items again without their ids: then what they say is compared.
	isNew := false
	err := d.fields.items.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		it, err := item.Read(v)
		isNew = isNew || !t.has(&it) && !t.repeats(&it)
		return err
	})
	if err != nil || isNew {
		return nil, err
	}

	for _, i := range t.latest {
		if id := gjson.GetBytes(i.JSON, "call_id").Str; id != "" && !sameOutput(t.outputs[id], d.codex.outputs[id]) {
			return nil, request.TurnConflict(t.ID)
		}
	}

	return &Repeated{Response: t.Response, Options: d.fields.options}, nil
}

// addCodexItem adds an item of the input as the mode has it: what the turn has is
// not added again, and a call that needs an output gets an empty one.
func (d *decoder) addCodexItem(it item.Item, source *reference) *apierror.Error {
	c := d.codex
	known := c.turn != nil && c.turn.has(&it)
	switch {
	case item.RoleOf(it.Kind) != item.ToolCall || !c.empty[it.CallID]:
		if known {
			return nil
		}
		return d.addItem(it, source)
	case known && !c.turn.waiting[it.CallID]:
		return nil
	}

	if !known {
		if err := d.addItem(it, source); err != nil {
			return err
		}
	}

	return d.addEmptyOutput(&it)
}

// addEmptyOutput adds an empty output of a call.
func (d *decoder) addEmptyOutput(call *item.Item) *apierror.Error {
	text := jsontext.AppendString([]byte(`{"type":"`+call.Kind+`_output","call_id":`), call.CallID)
	output, err := item.Read(jsontext.Field{
		Result: gjson.ParseBytes(append(text, `,"output":""}`...)),
		Path:   call.At.Path,
	})
	if err != nil {
		return err
	}
	return d.addItem(output, nil)
}

// continueAs makes the request continue a turn: under its id, with what it has as the
// beginning of the input.
func continueAs(r *request.Request, t *storedTurn) {
	r.ResponseID, r.Created = t.ID, gjson.GetBytes(t.Object, "created_at").Int()
	r.Storage.Previous, r.Storage.Continued, r.Storage.Version = t.Previous, t.Object, t.Version
	// A call that was cut can have no output: the model makes it anew.
	r.Storage.Input = slices.Concat(t.Input, item.WithoutCutCalls(t.Output), r.Storage.Input)
}
