package responses

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Items of clients' tools that are no functions, of other agents, and of types that
// are not known. What has text for the model becomes a call, an output or a message.

// actionNames are the functions as which the model sees calls with an action.
var actionNames = map[string]string{"shell_call": "shell", "local_shell_call": "local_shell", "apply_patch_call": "apply_patch", "computer_call": "computer"}

// addActionCall adds a call with an action.
func (r *itemReader) addActionCall(it item.Item) *apierror.Error {
	it.Name = actionNames[it.Kind]
	r.addTurn(turn.Item{Kind: turn.Call, Text: it.ActionArguments(), CallID: it.CallID, Name: it.Name, Path: it.At.Path})
	return it.CheckCall()
}

// addAgentMessage adds a message from another agent.
func (r *itemReader) addAgentMessage(it item.Item) *apierror.Error {
	if !it.Content.Exists() {
		return apierror.Invalid(it.At.Path+".content", "A message has no content.")
	}
	text, err := it.AgentMessage(r.rc.Model.Images)
	r.addTurn(turn.Item{Kind: turn.User, Text: text, Path: it.At.Path})
	return err
}

// addProgram adds a program that called tools, and addProgramOutput its result: the
// calls between them have items of their own.
func (r *itemReader) addProgram(it item.Item) *apierror.Error {
	if text := it.AnyText(); text != "" {
		r.addTurn(turn.Item{Kind: turn.Preamble, Text: text, Path: it.At.Path})
	}
	return nil
}

// addOther adds an item of a type that is not known. One without text steers the
// client, and is ignored.
func (r *itemReader) addOther(it item.Item) *apierror.Error {
	text := it.AnyText()
	if text == "" {
		r.ignore(it.Kind)
		return nil
	}
	r.addTurn(turn.Item{Kind: turn.User, Text: text, Path: it.At.Path})
	return nil
}

// ignore notes that the request has an item without an effect.
func (r *itemReader) ignore(kind string) {
	if r.ignored != nil && r.ownInput {
		r.ignored.Add("input." + item.Clip(kind))
	}
}

// addContextCompaction adds a compaction that a client has under another name. Without
// a summary it only says that there was one.
func (r *itemReader) addContextCompaction(it item.Item) *apierror.Error {
	if it.Encrypted == "" {
		r.ignore(it.Kind)
		return nil
	}
	return r.addCompaction(it)
}

// configuration is what configuration_update items set for the responses after them.
type configuration struct {
	effort, format string // JSON; "": not set
	path           string // of the last of the items
}

// with is the configuration after later updates.
func (c configuration) with(later configuration) configuration {
	return configuration{cmp.Or(later.effort, c.effort), cmp.Or(later.format, c.format), cmp.Or(later.path, c.path)}
}

// addConfiguration notes what the item sets.
func (r *itemReader) addConfiguration(it item.Item) *apierror.Error {
	set := configuration{path: it.At.Path}
	if v := it.At.Get("reasoning.effort"); v.Exists() && v.Type != gjson.Null {
		set.effort = strings.Clone(v.Raw)
	}
	if v := it.At.Get("text.format"); v.IsObject() {
		set.format = strings.Clone(v.Raw)
	}
	if set.effort == "" && set.format == "" {
		r.ignore(it.Kind)
		return nil
	}
	r.state.config = r.state.config.with(set)
	return nil
}

// configure applies what the items have set. It precedes the fields of the request:
// clients send such an item so that the fields can stay as they were.
func (d *decoder) configure() *apierror.Error {
	c := &d.items.state.config
	if c.effort != "" {
		d.fields.input.OptedOut = false
		if err := d.fields.readEffort(jsontext.Field{Result: gjson.Parse(c.effort), Path: c.path + ".reasoning.effort"}); err != nil {
			return err
		}
	}
	if c.format == "" {
		return nil
	}
	d.fields.input.Format, d.fields.echo.format = nil, newEcho().format
	return d.fields.readTextFormat(jsontext.Field{Result: gjson.Parse(c.format), Path: c.path + ".text.format"})
}

// openCalls are the calls without an output, as items are added.
type openCalls struct {
	open   map[string]bool
	queues map[string][]string // the ids of the calls by the name of the tool, and of all calls by ""
}

func (o *openCalls) add(items ...turn.Item) {
	for i := range items {
		switch it := &items[i]; it.Kind {
		case turn.Call:
			o.open[it.CallID] = true
			o.queues[""] = append(o.queues[""], it.CallID)
			if it.Name != "" {
				o.queues[it.Name] = append(o.queues[it.Name], it.CallID)
			}
		case turn.Result:
			delete(o.open, it.CallID)
		}
	}
}

// first is the oldest open call of a tool, of any tool if name is "". It returns "" if
// there is none.
func (o *openCalls) first(name string) string {
	for q := o.queues[name]; len(q) > 0; q = q[1:] {
		if o.open[q[0]] {
			o.queues[name] = q
			return q[0]
		}
	}
	delete(o.queues, name)
	return ""
}

// openNow are the open calls of the conversation so far.
func (r *itemReader) openNow() *openCalls {
	if r.open == nil {
		r.open = &openCalls{open: map[string]bool{}, queues: map[string][]string{}}
		r.open.add(r.before.OpenCalls()...)
		r.open.add(r.items...)
	}
	return r.open
}

// isRepeat reports whether the stored part of the conversation has a call, which waits
// for its output, or an output already. Some clients send both again together with
// what continues the stored part.
func (d *decoder) isRepeat(it *item.Item) bool {
	h := &d.history
	if h.items == 0 && d.items.before == nil || it.CallID == "" {
		return false
	}
	switch item.RoleOf(it.Kind) {
	case item.ToolCall:
		return h.waits(d, it.CallID)
	case item.ToolOutput:
		return !d.items.openNow().open[it.CallID] && h.has(d, it.CallID)
	}
	return false
}

// waits reports whether the stored part has a call without an output.
func (h *history) waits(d *decoder, id string) bool {
	if h.waiting == nil {
		calls := &openCalls{open: map[string]bool{}, queues: map[string][]string{}}
		calls.add(d.items.before.OpenCalls()...)
		calls.add(d.items.items[:min(h.items, len(d.items.items))]...)
		h.waiting = calls.open
	}
	return h.waiting[id]
}

// has reports whether the stored part has the output of a call. The items of a
// remembered chain are read for it, once: only a client that repeats an output, or
// makes one up, asks.
func (h *history) has(d *decoder, id string) bool {
	if h.outputs == nil {
		items := slices.Clone(d.items.items[:min(h.items, len(d.items.items))])
		if d.items.whole != nil {
			if whole, err := d.items.whole(); err == nil { // else the turn finds that the call is unknown
				items = append(items, whole...)
			}
		}
		h.outputs = map[string]bool{}
		for i := range items {
			if items[i].Kind == turn.Result {
				h.outputs[items[i].CallID] = true
			}
		}
	}
	return h.outputs[id]
}
