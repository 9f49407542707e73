package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// readResponseFormat reads {"type":…}, with {"name":…,"description":…,"schema":…,"strict":…}
// under json_schema where that is the type.
func (d *decoder) readResponseFormat(v jsontext.Field) *apierror.Error {
	switch v.Get("type").Str {
	case "text", "json_object":
		d.ignored.AddOthers(v, "type")
	case "json_schema":
		d.ignored.AddOthers(v, "type", "json_schema")
	}
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		return d.input.SetFormat(turn.JSONObject(), v.Path, nil)
	case "json_schema":
		inner := jsontext.Field{Result: v.Get("json_schema"), Path: v.Path + ".json_schema"}
		f, err := d.rc.NamedFormat(inner, func(_ string, v jsontext.Field) { d.ignored.Add(v.Path) })
		return d.input.SetFormat(f, v.Path, err)
	}
	return apierror.Invalid(v.Path, "The type of \"response_format\" must be text, json_object or json_schema.")
}

func (d *decoder) readStructuredOutputs(v jsontext.Field) *apierror.Error {
	f, err := d.rc.StructuredOutputs(v, &d.ignored)
	return d.input.SetFormat(f, v.Path, err)
}

func (d *decoder) readSchema(v jsontext.Field) *apierror.Error {
	f, err := d.rc.SchemaFormat(v)
	return d.input.SetFormat(f, v.Path, err)
}

func (d *decoder) readRegex(v jsontext.Field) *apierror.Error {
	f, err := d.rc.RegexFormat(v)
	return d.input.SetFormat(f, v.Path, err)
}

func (d *decoder) readTexts(v jsontext.Field) *apierror.Error {
	f, err := turn.ChoiceFormat(v)
	return d.input.SetFormat(f, v.Path, err)
}

func (d *decoder) readGrammar(v jsontext.Field) *apierror.Error {
	f, err := turn.GrammarFormat(v)
	return d.input.SetFormat(f, v.Path, err)
}
