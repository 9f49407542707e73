package write

import (
	"errors"
	"fmt"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// output is the items of a reply.
type output struct {
	request *request.Request
	events  *eventWriter
	mode    api.Mode

	item     *outputItem    // that is being written; nil between items
	made     []request.Made // the items that have begun, in their order
	count    int            // how many of them clients see
	answered int            // where in made the last answer is; -1 if there is none
	kept     bool           // the job that keeps the steps has been returned
	pages    item.Pages     // that the browser has shown
	cited    int            // bytes of the addresses and titles in citations so far
	logprobs collectedLogprobs
	fault    error
}

// outputItem is an item while it is being written.
type outputItem struct {
	item.Output
	index  int            // among the items of the output
	slot   int            // among those of the reply
	hosted *hosted.Server // whose tool is called, or whose tools are listed

	unwrap    turn.Unwrapper  // of a custom call
	plain     []byte          // of a custom call: the piece of text being added
	citations *item.Citations // of an answer; nil while there is nothing to cite
	found     []item.Citation // in the text that is being added
}

// kindOf is the item that a part of the turn becomes. called is what its call is, if it is one.
func kindOf(kind turn.Kind, called resolved) item.Kind {
	switch kind {
	case turn.Reasoning:
		return item.Reasoning
	case turn.Preamble:
		return item.Commentary
	case turn.Call:
		return called.kind
	}
	return item.Answer
}

// resolved is what a call of the model is.
type resolved struct {
	kind   item.Kind      // that it becomes
	server *hosted.Server // of the tool; nil: it is none that a server has been offered for
	maker  reply.Maker
	client bool // of a search for tools: the client runs it
}

// resolve says what a call is. Where no other model call can follow, the client has to tell the
// model that a tool does not exist.
func (o *output) resolve(call *turn.CalledTool) resolved {
	t := &o.request.Tools
	name := turn.ToolName{Namespace: call.Namespace, Name: call.Name}
	server, search := t.Server(call), t.Search.Tool(call)

	switch {
	case server != nil && server.Builtin != nil && !server.Offers(call.Name):
		return resolved{kind: item.Unknown, maker: reply.ByEncoder}
	case server != nil && server.Builtin != nil:
		return resolved{kind: item.OfBuiltin(server.Builtin), server: server, maker: reply.ByFilter}
	case server != nil && server.NeedsApproval(server.FromModel(call.Name)):
		return resolved{kind: item.MCPApproval, server: server, maker: reply.ByClient}
	case server != nil:
		return resolved{kind: item.MCPCall, server: server, maker: reply.ByFilter}
	case search != nil && search.Client:
		return resolved{kind: item.ToolSearch, maker: reply.ByClient, client: true}
	case search != nil:
		return resolved{kind: item.ToolSearch, maker: reply.ByEncoder}
	case t.Custom[name]:
		return resolved{kind: item.Custom, maker: reply.ByClient}
	case t.Actions[name].HasAction():
		return resolved{kind: t.Actions[name], maker: reply.ByClient}
	case o.mode == api.Loop && call.Namespace == "":
		return resolved{kind: item.Unknown, maker: reply.ByEncoder}
	}

	return resolved{kind: item.Function, maker: reply.ByClient}
}

// start begins an item.
func (o *output) start(kind turn.Kind, call *turn.CalledTool) {
	var called resolved
	if kind == turn.Call {
		called = o.resolve(call)
	}
	it := &outputItem{Output: item.Output{Kind: kindOf(kind, called), Call: call}, hosted: called.server}
	it.Summary = it.Kind == item.Reasoning && o.request.Options.Summary
	o.item = it

	switch it.Kind {
	case item.Unknown:
	case item.ToolSearch:
		it.ID = it.Kind.Names().Prefix + strings.TrimPrefix(call.ID, item.CallPrefix)
		it.Client = called.client
	// The item's id follows from the call's, so that either is found by the other in later requests.
	case item.Shell, item.LocalShell, item.ApplyPatch:
		it.ID = it.Kind.Names().Prefix + strings.TrimPrefix(call.ID, item.CallPrefix)
	case item.MCPCall, item.MCPApproval, item.WebSearch, item.Code, item.FileSearch, item.Image:
		it.Call = it.hosted.Named(call)
		it.ID = it.Kind.Names().Prefix + strings.TrimPrefix(call.ID, item.CallPrefix)
		it.Container, it.ShowOutputs = o.request.Tools.Container, o.request.Options.Outputs
		if !it.Kind.OnlyWhole() {
			o.announce(it)
		}
	default:
		switch it.Kind {
		// Some clients send this id as the call's.
		case item.Function, item.Custom:
			it.ID = it.Kind.Names().Prefix + strings.TrimPrefix(call.ID, item.CallPrefix)
		default:
			it.ID = o.request.Context.NewID(it.Kind.Names().Prefix)
		}
		it.Named = call != nil && call.Namespace == turn.FunctionsNamespace && o.request.Tools.Named[call.Name]
		o.place(it)
		o.events.itemStart(it)
	}
}

// place adds an item after those of the reply.
func (o *output) place(it *outputItem) {
	// Items that clients do not see have a slot and no index: the two differ from then on.
	it.index, it.slot = o.count, len(o.made)
	o.made = append(o.made, request.Made{ID: it.ID, Kind: it.Kind})
	o.count++
}

// announce begins an item whose tool is at work.
func (o *output) announce(it *outputItem) {
	o.place(it)
	o.events.itemAdded(it)
	o.events.itemStep(it, ".in_progress")
}

// text adds a piece of text to the item that is being written. logprobs are those of an
// answer.
func (o *output) text(p, logprobs []byte) {
	it := o.item
	if it.Kind == item.Custom {
		it.plain = it.unwrap.Push(it.plain[:0], p)
		p = it.plain
	}
	o.write(it, p)
	if it.Kind != item.Answer {
		return
	}

	if len(logprobs) > 0 {
		it.Logprobs = append(it.Logprobs, logprobs...)
	}
	o.cite(it, p)
}

// closeDelta ends the delta that is being written, if there is one.
func (o *output) closeDelta() {
	o.events.closeDelta(o.item)
	o.logprobs.end(o.item)
}

// write writes text of an item.
func (o *output) write(it *outputItem, p []byte) {
	if len(p) == 0 {
		return
	}

	shown := o.events.stream && !it.Kind.OnlyWhole()
	if shown {
		o.events.openDelta(it)
	}

	// The text is escaped once, for the event and for the item.
	begin := len(it.Text)
	it.Text = jsontext.AppendEscaped(it.Text, p)
	if shown {
		o.events.Dst = append(o.events.Dst, it.Text[begin:]...)
	}
}

// cite looks for citations in the next piece of an answer.
func (o *output) cite(it *outputItem, p []byte) {
	// Nearly no reply has pages: the search for citations costs each piece of text.
	if o.pages.Empty() {
		return
	}
	if it.citations == nil {
		it.citations = &item.Citations{Pages: &o.pages}
	}

	known := len(it.found)
	it.found = it.citations.AppendFound(it.found, p)

	// A citation is a few tokens of the model, and repeats an address that a page has chosen. The
	// text has those that are left out, too.
	for i, c := range it.found[known:] {
		if o.cited += len(c.URL) + len(c.Title); o.cited > maxCited {
			it.found = it.found[:known+i]
			return
		}
	}
}

// maxCited bounds the addresses and titles in the citations of a reply, in bytes. An answer
// has a few citations for each page that was read.
const maxCited = 256 << 10

// endText ends the text of the item that is being written, and returns the item.
func (o *output) endText() *outputItem {
	it := o.item
	if it.Kind == item.Custom {
		o.write(it, it.unwrap.Flush(it.plain[:0]))
	}
	o.closeDelta()
	o.logprobs.bytes += len(it.Logprobs)
	o.item = nil
	return it
}

// add makes the item's JSON, as it is now.
func (o *output) add(it *outputItem, status string) {
	o.seal(it)
	o.made[it.slot].JSON = it.Append(nil, status)
}

// addText completes an item with text; cut says that the engine ended it.
func (o *output) addText(it *outputItem, cut bool) {
	status := item.StatusCompleted
	if cut {
		status = item.StatusIncomplete
	}
	if it.Kind == item.Answer {
		o.answered = it.slot
	}
	o.add(it, status)
	o.events.itemEnd(it, o.made[it.slot].JSON)
}

// addWhole adds an item that clients see only whole.
func (o *output) addWhole(it *outputItem) {
	o.place(it)
	o.add(it, item.StatusCompleted)
	o.events.itemAdded(it)
	o.events.itemDone(it, o.made[it.slot].JSON)
}

// addUnknown answers a call of a tool that does not exist. Clients see neither the
// call nor the answer.
func (o *output) addUnknown(it *outputItem) {
	o.made = append(o.made, request.Made{Kind: item.Unknown, View: []turn.Item{
		{Kind: turn.Call, Text: it.PlainText(), CallID: it.Call.ID, Name: it.Call.Name},
		{Kind: turn.Result, Text: turn.NoSuchTool(it.Call.Name), CallID: it.Call.ID, Hosted: true},
	}})
}

// seal seals the text of a reasoning item where the request wants it. Without random
// bytes there is no sealed text; the content is there all the same.
func (o *output) seal(it *outputItem) {
	if o.request.Sealer == nil || it.Kind != item.Reasoning {
		return
	}

	var err error
	it.Sealed, err = o.request.Sealer.Seal(seal.Reasoning, o.request.Context.Tenant, []byte(it.PlainText()))
	if err != nil {
		o.fault = errors.Join(o.fault, fmt.Errorf("seal reasoning: %w", err))
	}
}

// items are the items that are complete, and those that were cut, as they are
// stored.
func (o *output) items() []store.Item {
	items := make([]store.Item, 0, len(o.made))
	for i, m := range o.made {
		if m.JSON == nil {
			continue
		}
		stored := m.Stored()
		// Once an answer has followed, the model sees no more of a built-in call.
		if len(m.View) > 0 && (i > o.answered || !m.View[0].Builtin) {
			stored.JSON = o.withView(&m, m.JSON)
		}
		items = append(items, stored)
	}

	return items
}

// withView is the JSON of an item with what the model sees in its place.
func (o *output) withView(m *request.Made, json []byte) []byte {
	return item.WithModelView(json, &m.View[0], &m.View[1], o.request.Tools.Container)
}

// append appends the same items as the elements of an array.
func (o *output) append(dst []byte) []byte {
	comma := false
	for _, m := range o.made {
		if m.JSON == nil {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = append(dst, m.JSON...)
	}

	return dst
}
