package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tidwall/gjson"

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
	if len(schema)*jsontext.Depth(schema) > maxScanned {
		return nil, fmt.Errorf("is too large to check for how deep it nests, beyond %d bytes times levels: make it smaller or flatter", maxScanned)
	}
	if pointersOf(gjson.ParseBytes(schema), 0) > maxPointers {
		return nil, errors.New("has names that are too long for what is in them: shorten them")
	}
	var s jsonschema.Schema
	if json.Unmarshal(schema, &s) != nil {
		return nil, errors.New("has a keyword with a value that is not of its type")
	}
	if strings.Contains(s.Schema, "draft-07") {
		s.Schema = draft7
	} else {
		s.Schema = "" // the newest
	}
	if err := readPatterns(&s); err != nil {
		return nil, err
	}
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
// that they do not know. Patterns of too many states together are refused.
func readPatterns(s *jsonschema.Schema) error {
	all := parts{}
	all.add("", s)
	states := 0
	for _, p := range all {
		s := p.schema
		for _, pattern := range append(slices.Collect(maps.Keys(s.PatternProperties)), s.Pattern) {
			if states += statesOf(goSyntax(pattern)); states > maxStates {
				return errStates
			}
		}
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
	return nil
}

const (
	// maxScanned bounds the bytes of a schema times its levels: reading it takes a
	// scan of every level.
	maxScanned = 4 << 20
	// maxPointers bounds the JSON pointers of a schema's parts, in bytes together.
	maxPointers = 16 << 20
	// maxStates bounds the states of a schema's patterns, of 40 bytes or more each.
	maxStates = 1 << 16
)

var errStates = fmt.Errorf("has patterns of more than %d states together, which is too much to check: repeat less often", maxStates)

// pointersOf is how many bytes the JSON pointers of a value's parts have, given how
// many its own has.
func pointersOf(v gjson.Result, own int) int {
	bytes := own
	v.ForEach(func(k, part gjson.Result) bool {
		if part.IsObject() || part.IsArray() {
			bytes += pointersOf(part, own+1+max(len(k.Str), 1))
		}
		return bytes <= maxPointers
	})
	return bytes
}

// statesOf is about how many states a pattern has, 0 if it is none.
func statesOf(pattern string) int {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return countStates(re)
}

func countStates(re *syntax.Regexp) int {
	states := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		states = min(states+countStates(sub), maxStates+1)
	}
	if re.Op == syntax.OpRepeat {
		states *= max(re.Min, re.Max, 1)
	}
	return min(states, maxStates+1)
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
