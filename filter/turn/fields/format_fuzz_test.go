package fields

import (
	"encoding/json"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// checked checks a format that was accepted once more.
func checked(f *request.Format) error {
	switch a := f.Answer.(type) {
	case constraint.AnswerJSON:
		return constraint.CheckSchema(nil, a.Schema, f.Strict)
	case constraint.AnswerRegex:
		return constraint.CheckRegex(nil, string(a))
	case constraint.AnswerGrammar:
		return constraint.CheckGrammar(string(a))
	case constraint.AnswerChoice:
		return constraint.CheckChoice(a)
	}
	return nil
}

// FuzzFormat reads arbitrary output formats in every form that a client can write one.
// An error is a refusal. What is accepted becomes a tag for the engine that is JSON, the
// same each time, and bounded by the request.
func FuzzFormat(f *testing.F) {
	for _, seed := range []string{
		`{"name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}`,
		`{"name":"n","schema":{"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}}`,
		`{"json":{"type":"array","items":{"type":"integer","minimum":3}}}`, `{"json":"{\"type\":\"object\"}"}`,
		`{"regex":"[a-z]+\\d{2,3}"}`, `{"choice":["yes","no"]}`, `{"grammar":"root ::= \"a\" | root \"b\""}`, `{"json_object":true,"regex":"a"}`,
		`"[a-z]{3,9}(x|y)*"`, `"root ::= [a-z]+"`, `["a","b","a"]`, `"\ud800"`, `{"type":"object","a":1}`, `7`,
	} {
		f.Add([]byte(seed))
	}

	rc := &request.Context{Env: &request.Env{Limits: request.DefaultLimits()}}
	readers := []func(v jsontext.Field) (*request.Format, *apierror.Error){
		func(v jsontext.Field) (*request.Format, *apierror.Error) {
			return NamedFormat(rc, v, func(string, jsontext.Field) *apierror.Error { return nil })
		},
		func(v jsontext.Field) (*request.Format, *apierror.Error) { return SchemaFormat(rc, v) },
		func(v jsontext.Field) (*request.Format, *apierror.Error) { return RegexFormat(rc, v) },
		GrammarFormat, ChoiceFormat,
		func(v jsontext.Field) (*request.Format, *apierror.Error) {
			return StructuredOutputs(rc, v, &jsontext.Ignored{})
		},
	}

	f.Fuzz(func(t *testing.T, raw []byte) {
		root, apiErr := jsontext.Parse([]byte(`{"format":` + string(raw) + `}`))
		if apiErr != nil {
			return
		}

		for i, read := range readers {
			format, err := read(jsontext.Field{Result: root.Get("format"), Path: "format"})
			switch {
			case err != nil:
				if err.Status != 400 || !json.Valid(err.JSON()) {
					t.Fatalf("reader %d: not a refusal: %v", i, err)
				}
				continue
			case format == nil:
				continue
			}

			if err := checked(format); err != nil {
				t.Errorf("reader %d: accepted, but: %v", i, err)
			}

			spec := constraint.Spec{Answer: format.Answer}
			tag := constraint.AppendStructuralTag(nil, spec.Format(nil))
			if !json.Valid(tag) {
				t.Errorf("reader %d: the tag is not JSON: %s", i, tag)
			}

			if again := constraint.AppendStructuralTag(nil, spec.Format(nil)); string(again) != string(tag) {
				t.Errorf("reader %d: the second tag is another:\n%s\n%s", i, tag, again)
			}

			if len(tag) > 4096+64*len(raw) {
				t.Errorf("reader %d: a tag of %d bytes for a format of %d", i, len(tag), len(raw))
			}
		}
	})
}
