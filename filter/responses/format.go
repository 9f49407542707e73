package responses

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func (d *decoder) readTextFormat(v jsontext.Field) *apierror.Error {
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		d.echo.format = []byte(`{"type":"json_object"}`)
		return d.input.SetFormat(turn.JSONObject(), v.Path, nil)
	case "json_schema":
		f, err := d.readJSONSchema(v)
		return d.input.SetFormat(f, v.Path, err)
	}
	return apierror.Invalid(v.Path, "The type of \"text.format\" must be text, json_object or json_schema.")
}

// readJSONSchema reads {"type":"json_schema","name":…,"description":…,"schema":…,"strict":…}.
func (d *decoder) readJSONSchema(v jsontext.Field) (*turn.Format, *apierror.Error) {
	format, err := d.scope.NamedFormat(v, func(key string, v jsontext.Field) {
		if key != "type" {
			d.ignored.Add(v.Path)
		}
	})
	if err != nil {
		return nil, err
	}
	echo := jsontext.AppendString([]byte(`{"type":"json_schema","name":`), format.Announced.Name)
	var description *string
	if given := v.Get("description"); given.Type == gjson.String {
		description = &given.Str
	}
	echo = appendText(append(echo, `,"description":`...), description)
	echo = append(append(echo, `,"schema":`...), format.Announced.Schema...)
	echo = strconv.AppendBool(append(echo, `,"strict":`...), format.Strict)
	echo = append(echo, '}')
	d.echo.format = echo
	return format, nil
}

func (d *decoder) readStructuredOutputs(v jsontext.Field) *apierror.Error {
	f, err := d.scope.StructuredOutputs(v, &d.ignored)
	return d.input.SetFormat(f, v.Path, err)
}
