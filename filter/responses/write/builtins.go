package write

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// beginBuiltin takes a call of a built-in tool that the model has completed, and
// returns what has to be done for it.
func (o *output) beginBuiltin(it *outputItem) tools.Job {
	job := it.hosted.Job(it.Call, it.PlainText(), o.request.Tools.Container)
	job.Arguments = it.hosted.WithArguments(job.Tool, job.Arguments)
	// Clients see the arguments that the server gets, with the fields of the request.
	it.Arguments = gjson.Parse(job.Arguments)
	switch it.Kind {
	case item.Code:
		o.events.text(it)
		o.events.itemStep(it, it.Kind.Names().Doing)
	case item.MCPCall:
		o.events.text(it)
	default:
		// These items come whole: only with its arguments is known what a call is about.
		it.Address = o.address(it)
		o.announce(it)
		o.events.itemStep(it, it.Kind.Names().Doing)
	}

	return job
}

// noteBuiltin notes what a built-in tool has returned: for the model, and for what the
// answer may cite.
func (o *output) noteBuiltin(it *outputItem) {
	text := it.Result.Text
	if it.Result.Error != "" {
		text = it.Result.Error
	} else if it.Kind == item.WebSearch {
		// What the result shows decides the address: before the call only the browser knew it.
		pages := &o.pages
		pages.Last = ""
		pages.Add(it.Result.Text, it.Result.Structured)
		it.Address = cmp.Or(pages.Last, it.Address)
	}

	call := turn.Item{
		Kind:      turn.Call,
		Text:      it.PlainText(),
		CallID:    it.Call.ID,
		Namespace: it.Call.Namespace,
		Name:      it.hosted.ToModel(it.Call.Name),
		Builtin:   it.Call.Builtin,
	}
	o.made[it.slot].View = []turn.Item{call, {Kind: turn.Result, Text: text, CallID: it.Call.ID, Hosted: true}}
}

// address is that of the page which a call of the browser is about; "" while only the
// browser knows it.
func (o *output) address(it *outputItem) string {
	id, cursor := it.Arguments.Get("id"), it.Arguments.Get("cursor")
	switch {
	case id.Type == gjson.String:
		return id.Str
	case id.Exists():
		return ""
	case cursor.Exists() && cursor.Int() >= 0:
		return o.pages.URL(int(cursor.Int()))
	}
	return o.pages.Last
}
