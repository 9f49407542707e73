package responses

import (
	"encoding/json"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
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
	var f harmony.ResponseFormat
	var description *string
	strict := false
	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type":
		case "name":
			f.Name, err = v.Text()
		case "description":
			f.Description, err = v.Text()
			description = &f.Description
		case "schema":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "The schema of an output format must be a JSON Schema object.")
			}
			f.Schema = json.RawMessage(v.Raw)
		case "strict":
			strict, err = v.Switch()
		default:
			d.ignored.Add(v.Path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	format, err := d.scope.JSONFormat(v.Path, f, strict)
	if err != nil {
		return nil, err
	}
	echo := jsontext.AppendString([]byte(`{"type":"json_schema","name":`), f.Name)
	echo = appendText(append(echo, `,"description":`...), description)
	echo = append(append(echo, `,"schema":`...), format.Announced.Schema...)
	echo = strconv.AppendBool(append(echo, `,"strict":`...), strict)
	echo = append(echo, '}')
	d.echo.format = echo
	return format, nil
}

func (d *decoder) readStructuredOutputs(v jsontext.Field) *apierror.Error {
	f, err := d.scope.StructuredOutputs(v, &d.ignored)
	return d.input.SetFormat(f, v.Path, err)
}
