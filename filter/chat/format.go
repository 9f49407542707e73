package chat

import (
	"encoding/json"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func (d *decoder) readResponseFormat(v jsontext.Field) *apierror.Error {
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		return d.input.SetFormat(turn.JSONObject(), v.Path, nil)
	case "json_schema":
		f, err := d.readJSONSchema(v)
		return d.input.SetFormat(f, v.Path, err)
	}
	return apierror.Invalid(v.Path, "The type of \"response_format\" must be text, json_object or json_schema.")
}

// readJSONSchema reads {"type":"json_schema","json_schema":{"name":…,"description":…,"schema":…,"strict":…}}.
func (d *decoder) readJSONSchema(v jsontext.Field) (*turn.Format, *apierror.Error) {
	var f harmony.ResponseFormat
	strict := false
	inner := jsontext.Field{Result: v.Get("json_schema"), Path: v.Path + ".json_schema"}
	err := inner.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			f.Name, err = v.Text()
		case "description":
			f.Description, err = v.Text()
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
	return d.scope.JSONFormat(inner.Path, f, strict)
}

func (d *decoder) readStructuredOutputs(v jsontext.Field) *apierror.Error {
	f, err := d.scope.StructuredOutputs(v, &d.ignored)
	return d.input.SetFormat(f, v.Path, err)
}

func (d *decoder) readSchema(v jsontext.Field) *apierror.Error {
	f, err := d.scope.SchemaFormat(v)
	return d.input.SetFormat(f, v.Path, err)
}

func (d *decoder) readRegex(v jsontext.Field) *apierror.Error {
	f, err := turn.RegexFormat(v)
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
