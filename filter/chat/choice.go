package chat

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

func (d *decoder) readParallelCalls(v jsontext.Field) *apierror.Error {
	parallel, err := v.Switch()
	d.input.OneCall = d.input.OneCall || !parallel
	return err
}

const badChoice = "The field \"tool_choice\" must be \"auto\", \"none\", \"required\", " +
	"or an object of the type function, custom or allowed_tools."

// readToolChoice reads a word, or {"type":"function","function":{"name":…}}, the same
// of a custom tool, or {"type":"allowed_tools","allowed_tools":{"mode":…,"tools":[…]}}.
func (d *decoder) readToolChoice(v jsontext.Field) *apierror.Error {
	if v.Type == gjson.String && d.input.SetChoice(v.Str) {
		return nil
	}

	switch v.Get("type").Str {
	case "function", "custom":
		name, err := d.readToolName(v)
		d.requireTool(name)
		return err
	case "allowed_tools":
		if err := choiceFields.Others(v, &d.ignored); err != nil {
			return err
		}
		return d.readAllowedTools(jsontext.Field{Result: v.Get("allowed_tools"), Path: v.Path + ".allowed_tools"})
	}
	return apierror.Invalid(v.Path, badChoice)
}

func (d *decoder) readAllowedTools(v jsontext.Field) *apierror.Error {
	// An empty list allows nothing; nil would allow everything.
	d.input.Choice.Allowed = []turn.ToolName{}

	err := v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "mode":
			if v.Str != "auto" && v.Str != "required" {
				return apierror.Invalid(v.Path, "The mode of \"allowed_tools\" must be auto or required.")
			}
			d.input.Choice.Required = v.Str == "required"
			return nil
		case "tools":
			return v.Elements(d.readAllowedTool)
		}
		return allowedFields.Other(key, v, &d.ignored)
	})
	if err == nil && len(d.input.Choice.Allowed) == 0 {
		return fields.NoneAllowed(v.Path + ".tools")
	}
	return err
}

func (d *decoder) readAllowedTool(i int, v jsontext.Field) *apierror.Error {
	if i >= d.rc.Limits.Tools {
		return apierror.Invalid(v.Path, "tool_choice allows more than %d tools.", d.rc.Limits.Tools)
	}
	if kind := v.Get("type").Str; kind != "function" && kind != "custom" {
		return apierror.Invalid(v.Path, "Only tools of the types \"function\" and \"custom\" are supported.")
	}
	name, err := d.readToolName(v)
	d.input.Choice.Allowed = append(d.input.Choice.Allowed, functionNamed(name))
	return err
}

// requireTool requires one call of a tool.
func (d *decoder) requireTool(name string) {
	d.input.Choice = turn.Choice{Required: true, Allowed: []turn.ToolName{functionNamed(name)}}
	// A tool that is chosen by its name is called once, as docs/compatibility.md says.
	d.input.OneCall = true
}

// readToolName reads {"type":"function","function":{"name":…}}, or the same of the type
// custom.
func (d *decoder) readToolName(v jsontext.Field) (string, *apierror.Error) {
	if err := choiceFields.Others(v, &d.ignored); err != nil {
		return "", err
	}

	kind := v.Get("type").Str
	d.ignored.AddOthers(jsontext.Field{Result: v.Get(kind), Path: v.Path + "." + kind}, "name")
	return jsontext.Field{Result: v.Get(kind + ".name"), Path: v.Path + "." + kind + ".name"}.Text()
}
