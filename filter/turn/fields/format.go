package fields

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// JSONObject returns the output format of any JSON object.
func JSONObject() *request.Format {
	return &request.Format{
		Answer:    constraint.AnswerJSON{Schema: constraint.AnyObject},
		Announced: &harmony.ResponseFormat{Name: "json_object", Schema: constraint.AnyObject},
	}
}

// maxFormatName bounds the name of an output format, in bytes, as OpenAI does.
const maxFormatName = 64

// namedSchema returns the output format of a JSON Schema, which the prompt announces
// under its name. path is the path of the schema's field.
func namedSchema(
	rc *request.Context, path string, format harmony.ResponseFormat, strict bool,
) (*request.Format, *apierror.Error) {
	switch {
	case format.Name == "":
		return nil, apierror.Invalid(path, "The output format has no name. Give it one.")
	case len(format.Name) > maxFormatName || !item.IsPlain(format.Name):
		return nil, apierror.Invalid(path,
			"The name of the output format must consist of at most %d letters, digits, _ and -.", maxFormatName)
	case len(format.Schema) == 0:
		return nil, apierror.Invalid(path, "The output format has no schema. Add one, or use json_object.")
	case len(format.Schema) > rc.Limits.SchemaBytes:
		return nil, apierror.Invalid(path,
			"The schema of the output format is larger than %d bytes.", rc.Limits.SchemaBytes)
	case jsontext.Depth(format.Schema) > rc.Limits.SchemaDepth:
		return nil, apierror.Invalid(path,
			"The schema of the output format nests more than %d levels deep.", rc.Limits.SchemaDepth)
	}

	if err := request.RoomForSchema(rc, format.Schema); err != nil {
		return nil, err
	}
	if err := constraint.CheckSchema(rc.Work, format.Schema, strict); err != nil {
		if refusal := rc.WorkRefused(path + constraint.SchemaPath(err)); refusal != nil {
			return nil, refusal
		}
		return nil, apierror.Invalid(path+constraint.SchemaPath(err),
			"The output format cannot be enforced: the schema %s. Change it.", err)
	}

	format.Name, format.Description = strings.Clone(format.Name), strings.Clone(format.Description)
	// A copy: the request's body is not kept.
	format.Schema = jsontext.AppendShown(nil, string(format.Schema))
	answer := constraint.AnswerJSON{Schema: format.Schema}
	return &request.Format{Answer: answer, Announced: &format, Strict: strict}, nil
}

// NamedFormat reads the output format of an object with name, description, schema
// and strict. other is called with the object's other members.
func NamedFormat(
	rc *request.Context, v jsontext.Field, other func(key string, v jsontext.Field) *apierror.Error,
) (*request.Format, *apierror.Error) {
	var format harmony.ResponseFormat
	strict := false

	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			format.Name, err = v.Text()
		case "description":
			format.Description, err = v.Text()
		case "schema":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "The schema of an output format must be a JSON Schema object.")
			}
			format.Schema = json.RawMessage(v.Raw)
		case "strict":
			err = v.SetSwitch(&strict)
		default:
			err = other(key, v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return namedSchema(rc, v.Path, format, strict)
}

// RegexFormat reads the output format of a regular expression.
func RegexFormat(rc *request.Context, v jsontext.Field) (*request.Format, *apierror.Error) {
	pattern, err := v.Text()
	if err != nil {
		return nil, err
	}

	if err := constraint.CheckRegex(rc.Work, pattern); err != nil {
		if refusal := rc.WorkRefused(v.Path); refusal != nil {
			return nil, refusal
		}
		return nil, apierror.Invalid(v.Path, "The regular expression %s.", err)
	}
	return &request.Format{Answer: constraint.AnswerRegex(strings.Clone(pattern))}, nil
}

// GrammarFormat reads the output format of an EBNF grammar.
func GrammarFormat(v jsontext.Field) (*request.Format, *apierror.Error) {
	grammar, err := v.Text()
	if err != nil {
		return nil, err
	}

	if err := constraint.CheckGrammar(grammar); err != nil {
		return nil, apierror.Invalid(v.Path, "The grammar %s.", err)
	}
	return &request.Format{Answer: constraint.AnswerGrammar(strings.Clone(grammar))}, nil
}

// ChoiceFormat reads the output format of an array of texts, of which the answer is
// one.
func ChoiceFormat(v jsontext.Field) (*request.Format, *apierror.Error) {
	var texts []string

	err := v.Elements(func(i int, one jsontext.Field) *apierror.Error {
		// The others are not read.
		if i == constraint.MaxChoices {
			return apierror.Invalid(v.Path, "The choice has more than %d texts.", constraint.MaxChoices)
		}
		text, err := one.Text()
		texts = append(texts, strings.Clone(text))
		return err
	})
	if err != nil {
		return nil, err
	}

	if err := constraint.CheckChoice(texts); err != nil {
		return nil, apierror.Invalid(v.Path, "The choice %s.", err)
	}
	return &request.Format{Answer: constraint.AnswerChoice(texts)}, nil
}

// SchemaFormat reads the output format of a JSON Schema without a name: an object,
// or the text of one.
func SchemaFormat(rc *request.Context, v jsontext.Field) (*request.Format, *apierror.Error) {
	schema := v.Raw
	if v.Type == gjson.String {
		schema = v.Str
	} else if !v.IsObject() {
		return nil, apierror.Invalid(v.Path,
			"The field %q must be a JSON Schema: an object, or the text of one.", v.Path)
	}
	return namedSchema(rc, v.Path, harmony.ResponseFormat{Name: "output", Schema: json.RawMessage(schema)}, false)
}

// OutputFields are the members of structured_outputs.
var OutputFields = jsontext.Members{
	"json":        {Keep: jsontext.KeepWhole},
	"json_object": {}, "regex": {}, "choice": {}, "grammar": {},
	"structural_tag":         {Refused: NoTags},
	"whitespace_pattern":     {Ignored: noWhitespace},
	"disable_any_whitespace": {Ignored: noWhitespace},
	"disable_additional_properties": {
		Refused: "The schema says which properties may be there. Set additionalProperties in it.",
	},
	"disable_fallback": {Ignored: "which library enforces a grammar does not change what it allows"},
	"backend":          {Ignored: "which library enforces a grammar does not change what it allows"},
}

// StructuredOutputs reads the output format of vLLM's object structured_outputs; nil
// if the object has none.
func StructuredOutputs(
	rc *request.Context, v jsontext.Field, ignored *jsontext.Ignored,
) (*request.Format, *apierror.Error) {
	var format *request.Format

	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		var one *request.Format
		switch key {
		case "json":
			one, err = SchemaFormat(rc, v)
		case "json_object":
			var on bool
			if on, err = v.Switch(); on {
				one = JSONObject()
			}
		case "regex":
			one, err = RegexFormat(rc, v)
		case "choice":
			one, err = ChoiceFormat(v)
		case "grammar":
			one, err = GrammarFormat(v)
		default:
			err = OutputFields.Other(key, v, ignored)
		}
		// The members that are null or false are as if they were not there.
		if err == nil && one != nil {
			format, err = oneFormat(format, one, v.Path)
		}
		return err
	})
	return format, err
}

// NoTags is the error text for structural tags of clients.
const NoTags = "Structural tags are not for clients: the filter generates its own, for the whole Harmony reply. " +
	"Use an output format, a regular expression, a choice or a grammar."

// SetFormat sets the output format that was read at path; nil if there is none
// there. err is the error of reading it, which SetFormat returns.
func SetFormat(in *request.Input, f *request.Format, path string, err *apierror.Error) *apierror.Error {
	if err == nil && f != nil {
		in.Format, err = oneFormat(in.Format, f, path)
	}
	return err
}

// oneFormat returns next, the output format at path, unless the request has one
// already.
func oneFormat(first, next *request.Format, path string) (*request.Format, *apierror.Error) {
	if first != nil {
		return nil, apierror.Invalid(path, "The request has more than one output format. Keep one of them.")
	}
	next.Path = cmp.Or(next.Path, path)
	return next, nil
}
