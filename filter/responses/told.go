package responses

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The item of a built-in tool's call does not say what the tool has given. Where
// a later request's prompt needs it, the stored item has a first member that
// says so, which clients neither get nor can send.
const toldModel = "told_model"

// appendTold begins a stored item with what the model is told of it: a call and
// its output.
func (r *Reply) appendTold(dst []byte, items []turn.Item) []byte {
	call, result := &items[0], &items[1]
	dst = jsontext.AppendString(append(dst, `{"`+toldModel+`":{"namespace":`...), call.Namespace)
	dst = jsontext.AppendString(append(dst, `,"name":`...), call.Name)
	dst = jsontext.AppendString(append(dst, `,"input":`...), call.Text)
	dst = jsontext.AppendString(append(dst, `,"output":`...), result.Text)
	dst = jsontext.AppendString(append(dst, `,"container":`...), r.call.container)
	if call.Builtin {
		dst = append(dst, `,"builtin":true`...)
	}
	return append(dst, '}')
}

// addTold adds what the model is told of a stored item.
func (d *decoder) addTold(it *item) {
	_, id, _ := strings.Cut(it.id, "_") // under which its reasoning is kept
	call := turn.Item{
		Kind: turn.Call, Text: it.told.Get("input").Str, CallID: callPrefix + id,
		Namespace: it.told.Get("namespace").Str, Name: it.told.Get("name").Str, Builtin: it.told.Get("builtin").Bool(), Path: it.at.Path,
	}
	d.facts.container = strings.Clone(it.told.Get("container").Str)
	if call.Builtin && call.Namespace == builtins[WebSearch].namespace {
		d.facts.pages.add(it.told.Get("output").Str, nil)
	}
	d.add(call, turn.Item{Kind: turn.Result, Text: it.told.Get("output").Str, CallID: call.CallID, Hosted: true, Path: it.at.Path})
}

// shown is a stored item as clients get it.
func shown(item store.Item) []byte {
	begin := []byte(`{"` + toldModel + `":`)
	if !bytes.HasPrefix(item.JSON, begin) {
		return item.JSON
	}
	end := len(begin) + len(gjson.GetBytes(item.JSON, toldModel).Raw)
	return append([]byte{'{'}, item.JSON[end+1:]...)
}
