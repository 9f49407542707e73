package read

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// storedTurn is a turn as far as it is stored.
type storedTurn struct {
	*store.Response

	// The ids of its items; the call_ids of its calls, those of them without an output, and
	// the outputs of the others.
	ids     map[string]bool
	calls   map[string]bool
	waiting map[string]bool
	outputs map[string]gjson.Result

	// What the request for its newest output added, and the JSON of that without the ids;
	// nil: it is not known yet.
	latest []store.Item
	said   map[string]bool
}

// readTurn reads what a response has.
func readTurn(r *store.Response) *storedTurn {
	t := &storedTurn{
		Response: r,
		ids:      map[string]bool{},
		calls:    map[string]bool{},
		waiting:  map[string]bool{},
		outputs:  map[string]gjson.Result{},
	}
	// Where the latest items begin.
	begin := 0
	for i, it := range r.Input {
		if t.add(it) {
			begin = i + 1
		}
	}

	t.latest = r.Input[begin:]
	for _, it := range r.Output {
		t.add(it)
	}

	return t
}

// add adds an item and reports whether the model made it.
func (t *storedTurn) add(i store.Item) (models bool) {
	t.ids[i.ID] = true
	v := gjson.ParseBytes(i.JSON)
	id := v.Get("call_id").Str
	switch item.RoleOf(v.Get("type").Str) {
	case item.ToolCall:
		t.calls[id] = true
		// A call that was cut has no output to wait for.
		t.waiting[id] = v.Get("status").Str != item.StatusIncomplete
		return true
	case item.ToolOutput:
		delete(t.waiting, id)
		t.outputs[id] = v.Get("output")
	}

	return v.Get("type").Str == "reasoning" || v.Get("role").Str == "assistant"
}

// sameOutput reports whether two outputs of a tool are the same JSON.
func sameOutput(a, b gjson.Result) bool {
	return bytes.Equal(jsontext.AppendCompact(nil, a.Raw), jsontext.AppendCompact(nil, b.Raw))
}

// has reports whether the turn has an item of a request.
func (t *storedTurn) has(it *item.Item) bool {
	switch item.RoleOf(it.Kind) {
	case item.ToolCall:
		return t.calls[it.CallID]
	case item.ToolOutput:
		_, has := t.outputs[it.CallID]
		return has
	}
	return it.ID != "" && t.ids[it.ID]
}

// repeats reports whether an item without an id says what one of the latest items
// says.
func (t *storedTurn) repeats(it *item.Item) bool {
	if t.said == nil {
		t.said = make(map[string]bool, len(t.latest))
		for _, known := range t.latest {
			id := jsontext.AppendString([]byte(`,"id":`), known.ID)
			t.said[string(bytes.Replace(known.JSON, id, []byte(`,"id":""`), 1))] = true
		}
	}
	return it.ID == "" && t.said[string(it.AppendStored(nil, ""))]
}
