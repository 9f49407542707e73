package constraint

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Validator checks texts against a JSON Schema, for engines that cannot be made
// to keep to one and for what their grammars let pass. It goes by the rules of JSON Schema, draft 2020-12 or 7, which
// leave the keyword format to the reader.
type Validator struct {
	schema *jsonschema.Resolved
	ways   int // to one value of a text
}

// The URL of draft 7, which the validator knows by no other spelling.
const draft7 = "http://json-schema.org/draft-07/schema#"

// NewValidator makes the validator of a schema that [CheckSchema] has passed.
// The error says what is wrong in words that fit behind "the schema".
func NewValidator(schema json.RawMessage) (*Validator, error) {
	var s jsonschema.Schema
	if json.Unmarshal(schema, &s) != nil {
		return nil, errors.New("has a keyword with a value that is not of its type")
	}
	if strings.Contains(s.Schema, "draft-07") {
		s.Schema = draft7
	} else {
		s.Schema = "" // the newest
	}
	readPatterns(&s)
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, errors.New("has a reference or a pattern that cannot be checked")
	}
	ways, err := waysOf(&s)
	if err != nil {
		return nil, err
	}
	return &Validator{resolved, ways}, nil
}

// readPatterns writes the patterns of a schema in Go's syntax. One that has none,
// beside a format that grammars enforce, is left out: it says the same in words
// that they do not know.
func readPatterns(s *jsonschema.Schema) {
	all := parts{}
	all.add("", s)
	for _, p := range all {
		s := p.schema
		s.Pattern = goSyntax(s.Pattern)
		if _, err := regexp.Compile(s.Pattern); err != nil && slices.Contains(formats, s.Format) {
			s.Pattern = ""
		}
		for _, name := range slices.Collect(maps.Keys(s.PatternProperties)) {
			if as := goSyntax(name); as != name {
				s.PatternProperties[as] = s.PatternProperties[name]
				delete(s.PatternProperties, name)
			}
		}
	}
}

// Accepts tells whether a text is one JSON value of the schema. One that costs too
// much to check is not: with arrays and objects nested more than 256 levels deep, or
// with more than 16 MiB in all the ways that the schema leads to one of its values.
func (v *Validator) Accepts(text []byte) bool {
	var value any
	return v.Affords(text) && json.Unmarshal(text, &value) == nil && v.schema.Validate(value) == nil
}

// Affords tells whether a text does not cost too much to check.
func (v *Validator) Affords(text []byte) bool {
	return len(text) <= maxWork/v.ways && jsontext.Depth(text) <= maxNesting
}
