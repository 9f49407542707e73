package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Validator validates texts against a JSON Schema, for engines that cannot enforce
// one, and for the parts that their grammars do not enforce. It implements JSON
// Schema, draft 2020-12 and draft 7, and ignores the keyword format.
type Validator struct {
	schema *jsonschema.Resolved
	ways   int  // how often one value of a text is validated, at most
	unique bool // it compares the elements of arrays
}

// draft7 is the URL of draft 7, in the only spelling that the library accepts.
const draft7 = "http://json-schema.org/draft-07/schema#"

// NewValidator returns the validator of a schema that [CheckSchema] accepts. The
// error's text continues "the schema".
func NewValidator(account *work.Account, schema json.RawMessage) (*Validator, error) {
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
	unique := readComparisons(&s)
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, errors.New("has a reference or a pattern that cannot be checked")
	}
	ways, err := waysOf(&s)
	if err != nil {
		return nil, err
	}
	return &Validator{resolved, ways, unique}, nil
}

// readComparisons reports whether a schema has uniqueItems. It removes multipleOf
// with a fraction that is not exact in binary, such as 0.01: the library divides
// floating point numbers, so that it rejects 0.07.
func readComparisons(s *jsonschema.Schema) (unique bool) {
	all := parts{}
	all.add("", s)
	for _, p := range all {
		unique = unique || p.schema.UniqueItems
		if m := p.schema.MultipleOf; m != nil && *m*exactFractions != math.Trunc(*m*exactFractions) {
			p.schema.MultipleOf = nil
		}
	}
	return unique
}

// exactFractions is the denominator of the fractions that multipleOf is checked with.
const exactFractions = 1 << 20

// readPatterns replaces the patterns of a schema by ones in Go's syntax. A pattern
// that cannot be compiled is removed if the schema has a format: it is another
// notation of the format. Patterns with too many states in
// total are an error.
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
		if _, err := regexp.Compile(s.Pattern); err != nil && s.Format != "" {
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
	// maxScanned bounds the bytes of a schema times its depth: the library scans every
	// level separately.
	maxScanned = 4 << 20
	// maxPointers bounds the JSON pointers of a schema's parts, in total bytes.
	maxPointers = 16 << 20
)

// pointersOf returns the total bytes of the JSON pointers of a value's parts; own is
// the length of its own.
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

// statesOf returns the approximate number of states of a pattern; 0 if it is invalid.
func statesOf(pattern string) int {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return countStates(re)
}

// Accepts reports whether a text is one JSON value of the schema. It rejects texts
// that cost too much to validate, see [Validator.affords].
func (v *Validator) Accepts(account *work.Account, text []byte) (bool, error) {
	if !v.affords(text) {
		return false, work.ErrExceeded
	}
	var value any
	return json.Unmarshal(text, &value) == nil && v.schema.Validate(value) == nil, nil
}

// affords reports whether a text does not cost too much to validate: its arrays and
// objects nest at most 256 levels deep, its length times the number of ways in which
// the schema leads to one value is at most 16 MiB, and uniqueItems compares at most
// 4,096 arrays and objects.
func (v *Validator) affords(text []byte) bool {
	return len(text) <= maxWork/v.ways && jsontext.Depth(text) <= maxNesting && (!v.unique || comparisons(gjson.ParseBytes(text)) <= maxCompares/v.ways)
}

// maxCompares bounds the comparisons of arrays and objects for uniqueItems.
const maxCompares = 1 << 24

// comparisons returns how often arrays and objects are compared for uniqueItems, at
// most: the library compares all that have the same hash, and these can be made so.
// Other values have hashes of their own.
func comparisons(v gjson.Result) int {
	n, total := 0, 0
	isArray := v.IsArray()
	v.ForEach(func(_, element gjson.Result) bool {
		if element.IsArray() || element.IsObject() {
			if isArray {
				n = min(n+1, maxCompares+1)
			}
			total = min(total+comparisons(element), maxCompares+1)
		}
		return true
	})
	return min(total+n*n, maxCompares+1)
}
