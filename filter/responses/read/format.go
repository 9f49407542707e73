package read

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

func (f *fieldReader) readTextFormat(v jsontext.Field) *apierror.Error {
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		f.echo.format = []byte(`{"type":"json_object"}`)
		// llama.cpp has the schema here, and others.
		if schema := v.Get("schema"); schema.IsObject() {
			format, err := fields.SchemaFormat(f.rc, jsontext.Field{Result: schema, Path: v.Path + ".schema"})
			return fields.SetFormat(&f.input, format, v.Path, err)
		}
		return fields.SetFormat(&f.input, fields.JSONObject(), v.Path, nil)
	case "json_schema":
		format, err := f.readJSONSchema(v)
		return fields.SetFormat(&f.input, format, v.Path, err)
	}

	return apierror.Invalid(v.Path, "The type of \"text.format\" must be text, json_object or json_schema.")
}

// readJSONSchema reads {"type":"json_schema","name":…,"description":…,"schema":…,"strict":…}.
func (f *fieldReader) readJSONSchema(v jsontext.Field) (*turn.Format, *apierror.Error) {
	format, err := fields.NamedFormat(f.rc, v, func(key string, v jsontext.Field) *apierror.Error {
		if key == "type" {
			return nil
		}
		return toolset.FormatFields.Other(key, v, &f.ignored)
	})
	if err != nil {
		return nil, err
	}

	echo := jsontext.AppendString([]byte(`{"type":"json_schema","name":`), format.Announced.Name)
	// The response has null for a description that the client has not sent.
	var description *string
	if text := v.Get("description"); text.Type == gjson.String {
		description = &text.Str
	}

	echo = appendText(append(echo, `,"description":`...), description)
	echo = append(append(echo, `,"schema":`...), format.Announced.Schema...)
	echo = strconv.AppendBool(append(echo, `,"strict":`...), format.Strict)
	echo = append(echo, '}')
	f.echo.format = echo
	return format, nil
}

func (f *fieldReader) readStructuredOutputs(v jsontext.Field) *apierror.Error {
	format, err := fields.StructuredOutputs(f.rc, v, &f.ignored)
	return fields.SetFormat(&f.input, format, v.Path, err)
}
