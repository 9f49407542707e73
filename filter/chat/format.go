package chat

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// readResponseFormat reads {"type":…}. A schema stands under json_schema, with {"name":…,
// "description":…,"schema":…,"strict":…}, or beside the type, where llama.cpp, Together and
// Fireworks have it for json_object, and Ollama for json_schema. Together has regex,
// Fireworks grammar.
func (d *decoder) readResponseFormat(v jsontext.Field) *apierror.Error {
	kind := v.Get("type").Str
	if kind == "text" {
		d.ignored.AddOthers(v, "type")
		return nil
	}
	if err := formatFields.Others(v, &d.ignored); err != nil {
		return err
	}

	member := func(name string) jsontext.Field {
		return jsontext.Field{Result: v.Get(name), Path: v.Path + "." + name}
	}
	// Serializers write members without a value as null, which must not select a form.
	given := func(f jsontext.Field) bool { return f.Exists() && f.Type != gjson.Null }
	var format *turn.Format
	var err *apierror.Error
	switch named, schema := member("json_schema"), member("schema"); {
	case kind == "regex":
		format, err = fields.RegexFormat(d.rc, member("pattern"))
	case kind == "grammar":
		format, err = fields.GrammarFormat(member("grammar"))
	case kind != "json_object" && kind != "json_schema":
		err = apierror.Invalid(v.Path,
			"The type of \"response_format\" must be text, json_object, json_schema, regex or grammar.")
	// Without any schema the reader of json_schema says what is missing.
	case given(named), kind == "json_schema" && !given(schema):
		format, err = fields.NamedFormat(d.rc, named, func(key string, v jsontext.Field) *apierror.Error {
			return schemaFields.Other(key, v, &d.ignored)
		})
	// A flat json_schema with a name: the object itself has the members of json_schema.
	case given(schema) && (given(member("name")) || given(member("strict"))):
		format, err = fields.NamedFormat(d.rc, v, func(string, jsontext.Field) *apierror.Error { return nil })
	case given(schema):
		format, err = fields.SchemaFormat(d.rc, schema)
	default:
		format = fields.JSONObject()
	}
	return fields.SetFormat(&d.input, format, v.Path, err)
}

// readFormat reads Ollama's format: "json", or a schema.
func (d *decoder) readFormat(v jsontext.Field) *apierror.Error {
	switch v.Raw {
	case `""`:
		return nil
	case `"json"`:
		return fields.SetFormat(&d.input, fields.JSONObject(), v.Path, nil)
	}
	f, err := fields.SchemaFormat(d.rc, v)
	return fields.SetFormat(&d.input, f, v.Path, err)
}

func (d *decoder) readStructuredOutputs(v jsontext.Field) *apierror.Error {
	f, err := fields.StructuredOutputs(d.rc, v, &d.ignored)
	return fields.SetFormat(&d.input, f, v.Path, err)
}

func (d *decoder) readSchema(v jsontext.Field) *apierror.Error {
	f, err := fields.SchemaFormat(d.rc, v)
	return fields.SetFormat(&d.input, f, v.Path, err)
}

func (d *decoder) readRegex(v jsontext.Field) *apierror.Error {
	f, err := fields.RegexFormat(d.rc, v)
	return fields.SetFormat(&d.input, f, v.Path, err)
}

func (d *decoder) readTexts(v jsontext.Field) *apierror.Error {
	f, err := fields.ChoiceFormat(v)
	return fields.SetFormat(&d.input, f, v.Path, err)
}

func (d *decoder) readGrammar(v jsontext.Field) *apierror.Error {
	f, err := fields.GrammarFormat(v)
	return fields.SetFormat(&d.input, f, v.Path, err)
}
