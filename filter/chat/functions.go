package chat

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The first form of tools in this API, which clients still send: functions and
// function_call in place of tools and tool_choice. A reply has at most one call, which has
// no id, and a message of the role function is the result.

// readFunctions reads functions.
func (d *decoder) readFunctions(v jsontext.Field) *apierror.Error {
	functions := harmony.Namespace{Name: turn.FunctionsNamespace}
	err := v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= d.rc.Limits.Tools {
			return apierror.Invalid(v.Path, "The request has more than %d functions.", d.rc.Limits.Tools)
		}
		var t harmony.Tool
		err := d.readFunction(v, &t)
		functions.Tools = append(functions.Tools, t)
		return err
	})
	// An empty list changes nothing: the reply's calls keep the form of tools.
	if len(functions.Tools) == 0 {
		return err
	}

	// The reply's function_call has room for one call: the turn ends after the first.
	d.options.legacyCalls, d.input.OneCall = true, true
	return cmp.Or(err, d.offer(functions))
}

// readFunctionCall reads function_call: none, auto, or {"name":…}.
func (d *decoder) readFunctionCall(v jsontext.Field) *apierror.Error {
	switch {
	case v.Type == gjson.String && (v.Str == "none" || v.Str == "auto") && d.input.SetChoice(v.Str):
		return nil
	case !v.IsObject():
		return apierror.Invalid(v.Path,
			"The field \"function_call\" must be none, auto, or an object with the name of a function.")
	}

	d.ignored.AddOthers(v, "name")
	name, err := jsontext.Field{Result: v.Get("name"), Path: v.Path + ".name"}.Text()
	d.requireTool(name)
	return err
}

// readLegacyCall reads the function_call of an assistant's message. Its place is its id.
func (d *decoder) readLegacyCall(v jsontext.Field) (turn.Item, *apierror.Error) {
	// Calls of this form have no ids, and the prompt's history needs one for each.
	call := turn.Item{Kind: turn.Call, Text: "{}", CallID: v.Path, Path: v.Path}
	err := d.readCalledFunction(v, &call)
	if err == nil && call.Name == "" {
		err = apierror.Invalid(v.Path+".name", "A function call has no name. Send the one of the reply.")
	}
	if d.legacyCalls == nil {
		d.legacyCalls = map[string][]string{}
	}
	d.legacyCalls[call.Name] = append(d.legacyCalls[call.Name], call.CallID)
	return call, err
}

// resultOf returns the id of the call that a message of the role function answers: the
// last of that function without a result. Earlier ones have been given up.
func (d *decoder) resultOf(m *message) (id string, _ *apierror.Error) {
	waiting := d.legacyCalls[m.name]
	if len(waiting) == 0 {
		return "", apierror.Invalid(m.at.Path+".name",
			"No function_call before this message waits for a result of the function that it names. "+
				"Send the call before its result, and its name in both.")
	}
	last := len(waiting) - 1
	d.legacyCalls[m.name] = waiting[:last]
	return waiting[last], nil
}

// answerLegacyCalls gives the calls without a result an empty one. This form of the API
// has never required one, and clients that ask for a better call send the call alone.
func (d *decoder) answerLegacyCalls() {
	waiting := map[string]bool{}
	for _, ids := range d.legacyCalls {
		for _, id := range ids {
			waiting[id] = true
		}
	}
	if len(waiting) == 0 {
		return
	}

	// The result stands right after its call, where the client would have sent it.
	items := make([]turn.Item, 0, len(d.input.Items)+len(waiting))
	for _, item := range d.input.Items {
		items = append(items, item)
		if item.Kind == turn.Call && waiting[item.CallID] {
			items = append(items, turn.Item{Kind: turn.Result, CallID: item.CallID, Path: item.Path})
		}
	}
	d.input.Items = items
}

// readCustom reads the definition of a custom tool, whose input is text.
func (d *decoder) readCustom(at jsontext.Field, t *harmony.Tool) *apierror.Error {
	var format jsontext.Field
	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			t.Name, err = v.Text()
		case "description":
			t.Description, err = v.Text()
		case "format":
			format = v
		default:
			err = customFields.Other(key, v, &d.ignored)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case t.Name == "":
		return apierror.Invalid(at.Path+".name", "A tool has no name. Give every tool one.")
	}

	// Harmony has functions only: to the model a custom tool is one with a single text as its argument.
	t.Parameters = []byte(fields.CustomParameters)
	if d.options.custom == nil {
		d.options.custom = map[string]bool{}
	}
	d.options.custom[strings.Clone(t.Name)] = true
	if format.Exists() {
		return d.readCustomFormat(format, t)
	}
	return nil
}

// readCustomFormat reads {"type":"text"} or {"type":"grammar","grammar":{…}}.
func (d *decoder) readCustomFormat(v jsontext.Field, t *harmony.Tool) *apierror.Error {
	switch v.Get("type").Str {
	case "text":
		return nil
	case "grammar":
	default:
		return apierror.Invalid(v.Path+".type", "The format of a custom tool must be of the type text or grammar.")
	}

	grammar := jsontext.Field{Result: v.Get("grammar"), Path: v.Path + ".grammar"}
	if !grammar.IsObject() {
		return apierror.Invalid(grammar.Path,
			"The field %q must be an object with definition and syntax.", grammar.Path)
	}

	// All grammars of the request share one bound: the engine compiles them together.
	room := func(cost int) bool { return d.input.RoomForGrammar(d.rc, d.grammars+cost) }
	format, err := fields.ReadCustomFormat(grammar, t.Name, d.rc.Work, room)
	if err != nil {
		return err
	}

	t.Description += format.Shown
	d.grammars += format.Cost
	// The model is shown a grammar that engines cannot enforce.
	if format.Grammar == "" {
		d.ignored.Add(v.Path)
		return nil
	}
	d.input.EnforceGrammar(functionNamed(t.Name), format.Grammar)
	return nil
}

// enforceCustom has the input of custom tools written and read as text.
func (d *decoder) enforceCustom() {
	tools := make([]turn.ToolName, 0, len(d.options.custom))
	for name := range d.options.custom {
		tools = append(tools, functionNamed(name))
	}
	d.input.EnforceText(tools)
}

// functionNamed is the full name of a tool, which outlives the body.
func functionNamed(name string) turn.ToolName {
	return turn.ToolName{Namespace: turn.FunctionsNamespace, Name: strings.Clone(name)}
}
