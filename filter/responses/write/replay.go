package write

import (
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Replay is the stream of a stored response: its newest items, each with its text in
// one piece.
func Replay(r *store.Response, o request.Options) []byte {
	w := newEventWriter(o)
	// The first events have the response as it was before it ended.
	begun := r.Object
	for _, m := range []struct{ name, value string }{
		{"status", `"` + item.StatusInProgress + `"`},
		{"completed_at", "null"},
		{"incomplete_details", "null"},
		{"error", "null"},
		{"usage", "null"},
	} {
		// The stored text is an object, so that setting a member does not fail.
		if changed, err := sjson.SetRawBytes(begun, m.name, []byte(m.value)); err == nil {
			begun = changed
		}
	}

	for _, step := range []string{"created", "in_progress"} {
		w.replayResponse(step, &store.Response{Object: begun})
	}

	end := ending{status: gjson.GetBytes(r.Object, "status").Str}
	// The items are those of the newest request: the client has the others.
	for i, it := range r.Output {
		w.replayItem(i, it, end.own())
	}

	w.replayResponse(stored.LastEvent(end.status), r)
	w.Close()

	return w.Dst
}

// replayResponse writes an event that has a whole response.
func (w *eventWriter) replayResponse(step string, r *store.Response) {
	w.Begin("response.", step)
	w.Dst = stored.AppendObject(append(w.Dst, `,"response":`...), r)
	w.End()
}

// replayItem writes the events of an item. As in the first stream, one that is
// incomplete has its end only where the response came to its own end.
func (w *eventWriter) replayItem(index int, i store.Item, ownEnd bool) {
	v := gjson.ParseBytes(i.JSON)
	it, text := replayed(index, i, v)
	// The outcome of a tool that was called here is one piece.
	if it == nil {
		w.itemWhole(index, ".added", item.Shown(i))
		w.itemWhole(index, ".done", item.Shown(i))
		return
	}
	if it.Kind.HasAction() {
		w.action(it, item.Shown(i))
		return
	}
	if it.Kind == item.Carrier {
		w.itemAdded(it)
		w.itemWhole(index, ".done", item.Shown(i))
		return
	}

	w.itemStart(it)
	if text != "" {
		w.openDelta(it)
		it.Text = jsontext.AppendEscaped(nil, []byte(text))
		w.Dst = append(w.Dst, it.Text...)
	}

	w.closeDelta(it)
	if ownEnd || v.Get("status").Str != item.StatusIncomplete {
		w.itemEnd(it, item.Shown(i))
	}
}

// replayed is a stored item with text, and its text; nil for other items.
func replayed(index int, i store.Item, v gjson.Result) (it *outputItem, text string) {
	it = &outputItem{index: index}
	it.ID, it.Summary = i.ID, !v.Get("content").Exists() && v.Get("type").Str == "reasoning"
	text = v.Get("content.0.text").Str
	switch v.Get("type").Str {
	case "reasoning":
		it.Kind = item.Reasoning
		if item.IsCarrier(v.Get("encrypted_content").Str) {
			it.Kind = item.Carrier
			return it, ""
		}
		if it.Summary {
			text = v.Get("summary.0.text").Str
		}
	case "function_call":
		it.Kind, text = item.Function, v.Get("arguments").Str
	case "custom_tool_call":
		it.Kind, text = item.Custom, v.Get("input").Str
	case "shell_call":
		it.Kind, it.Action = item.Shell, []byte(v.Get("action").Raw)
	case "local_shell_call":
		it.Kind, it.Action = item.LocalShell, []byte(v.Get("action").Raw)
	case "apply_patch_call":
		it.Kind, it.Action = item.ApplyPatch, []byte(v.Get("operation").Raw)
	case "message":
		it.Kind = item.Answer
		if v.Get("phase").Str == "commentary" {
			it.Kind = item.Commentary
		}
	default:
		return nil, ""
	}

	if it.Kind == item.Function || it.Kind == item.Custom || it.Kind.HasAction() {
		it.Call = &turn.CalledTool{ID: v.Get("call_id").Str, Namespace: v.Get("namespace").Str, Name: v.Get("name").Str}
	}

	return it, text
}
