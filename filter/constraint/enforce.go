package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// soleKeywords are the keywords next to which xgrammar ignores all others. If a
// schema has several, the first one of this list is enforced.
var soleKeywords = []string{"$ref", "const", "enum", "anyOf", "oneOf", "allOf"}

// valueKeywords are the other keywords that restrict a value.
var valueKeywords = []string{
	"type",
	"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
	"minProperties", "maxProperties",
	"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems",
	"pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}

// typedKeywords are the keywords that xgrammar enforces only if the schema has a type.
var typedKeywords = []string{
	"pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
	"minItems", "maxItems", "minProperties", "maxProperties",
}

// conflictingKeywords are pairs of keywords of which xgrammar enforces only one.
var conflictingKeywords = [][2]string{
	{"pattern", "minLength"},
	{"pattern", "maxLength"},
	{"format", "minLength"},
	{"format", "maxLength"},
	{"patternProperties", "properties"},
	{"patternProperties", "propertyNames"},
	{"patternProperties", "required"},
	{"propertyNames", "properties"},
	{"propertyNames", "required"},
}

// checkEnforceable rejects what grammars do not enforce.
func (c *schemaCheck) checkEnforceable(object map[string]any) error {
	has := func(k string) bool { return object[k] != nil }

	for _, k := range unenforcedKeywords {
		if has(k) {
			return fmt.Errorf("uses %q, which no grammar enforces", k)
		}
	}

	if all, _ := object["allOf"].([]any); len(all) > 1 {
		return errors.New(`uses "allOf" with more than one schema, which no grammar enforces`)
	}

	// Beside such a keyword xgrammar sees no other: what is left is whether one is there.
	if i := slices.IndexFunc(soleKeywords, has); i >= 0 {
		return c.checkSole(object, soleKeywords[i], soleKeywords[i+1:])
	}

	for _, pair := range conflictingKeywords {
		if has(pair[0]) && has(pair[1]) {
			return fmt.Errorf("uses %q together with %q, of which grammars enforce only one", pair[0], pair[1])
		}
	}

	if i := slices.IndexFunc(typedKeywords, has); i >= 0 && !has("type") {
		return fmt.Errorf(`uses %q without "type", where no grammar enforces it`, typedKeywords[i])
	}
	if err := c.checkPatterns(object); err != nil {
		return err
	}

	for _, k := range limits {
		if x, _ := number(object[k]); math.Abs(x) > maxLimit {
			return fmt.Errorf("has a %q beyond 2^63", k)
		}
	}
	for _, k := range [...]string{"maxLength", "maxItems", "maxProperties"} {
		if most, _ := number(object[k]); most > MaxCount {
			return fmt.Errorf("has a %q beyond %d", k, MaxCount)
		}
	}
	return nil
}

// checkPatterns rejects patterns that are not in the grammar and that no format
// stands for.
func (c *schemaCheck) checkPatterns(object map[string]any) error {
	patterns := []string{}
	if pattern, ok := object["pattern"].(string); ok && !enforcedFormat(object) {
		patterns = append(patterns, pattern)
	}

	names, _ := object["patternProperties"].(map[string]any)
	for _, pattern := range slices.AppendSeq(patterns, maps.Keys(names)) {
		if _, err := c.cost.pattern(pattern); err != nil && !errors.Is(err, errTotalCost) {
			return err
		}
	}
	return nil
}

// checkSole rejects keywords next to one of soleKeywords, with which grammars do not
// enforce them.
func (c *schemaCheck) checkSole(object map[string]any, keyword string, others []string) error {
	fixed := keyword == "const" || keyword == "enum"
	for _, k := range slices.Concat(others, valueKeywords) {
		if object[k] == nil || fixed && k == "type" {
			continue
		}
		return fmt.Errorf(
			"uses %q beside %q, of which grammars enforce only the latter: move it into the schemas there, "+
				"or leave it out", k, keyword)
	}

	// A type beside fixed values says nothing more, if all of them are of it.
	if names, _ := typesOf(object); fixed && names != nil {
		for _, v := range valuesOf(object) {
			if !isOfType(v, names) {
				return fmt.Errorf(`has a value in its %q that is not of its "type"`, keyword)
			}
		}
	}

	// Grammars take oneOf for anyOf, so that no value may be of two of the schemas.
	list, _ := object["oneOf"].([]any)
	for i := range list {
		for j := range i {
			if keyword == "oneOf" && !c.disjoint(list[i], list[j], 0) {
				return errors.New(`uses "oneOf" with schemas that a value can be of both, ` +
					"which no grammar rules out: " +
					`use "anyOf", or give each of them a required property with a "const" of its own`)
			}
		}
	}
	return nil
}

// valuesOf returns the values of a const or an enum; nil if a schema has neither.
func valuesOf(object map[string]any) []any {
	if v, ok := object["const"]; ok {
		return []any{v}
	}
	list, _ := object["enum"].([]any)
	return list
}

// isOfType reports whether a value has one of some types.
func isOfType(v any, names []string) bool {
	for _, name := range typeNames(v) {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// typeNames returns the types of a value.
func typeNames(value any) []string {
	switch value := value.(type) {
	case string:
		return []string{"string"}
	case bool:
		return []string{"boolean"}
	case nil:
		return []string{"null"}
	case []any:
		return []string{"array"}
	case json.Number:
		if _, err := value.Int64(); err == nil {
			return []string{"integer", "number"}
		}
		return []string{"number"}
	}
	return []string{"object"}
}

const (
	// maxCompareDepth bounds the depth to which two schemas are compared, and
	// maxFollowed the length of the chain of references to one of them.
	maxCompareDepth = 4
	maxFollowed     = 16
	// stepsOfPair is what it takes to look at two schemas.
	stepsOfPair = 40
)

// disjoint reports whether two schemas have no value in common: because of their
// types, their values, or those of a property that both require. If that takes more than
// the account has, it returns false.
func (c *schemaCheck) disjoint(a, b any, depth int) bool {
	if c.account.Spend(stepsOfPair) != nil || depth > maxCompareDepth {
		return false
	}

	x, y := c.dereferenced(a), c.dereferenced(b)
	if x == nil || y == nil {
		return false
	}

	// Each pair of values may be compared, and each name looked for in a list.
	some, others := valuesOf(x), valuesOf(y)
	required, _ := texts(x["required"])
	too, _ := texts(y["required"])
	if c.account.Spend(len(some)+len(others)+len(too)+len(required)*(2+len(too)/8)) != nil {
		return false
	}

	if some != nil && others != nil {
		return !slices.ContainsFunc(some, func(v any) bool {
			return slices.ContainsFunc(others, func(w any) bool { return c.equal(v, w) })
		})
	}

	if k, l := kindsOf(x, some), kindsOf(y, others); k != nil && l != nil &&
		!slices.ContainsFunc(k, func(name string) bool { return slices.Contains(l, name) }) {
		return true
	}

	// Objects whose kinds a property tells apart, as most clients write unions.
	left, _ := x["properties"].(map[string]any)
	right, _ := y["properties"].(map[string]any)
	return x["type"] == "object" && y["type"] == "object" && slices.ContainsFunc(required, func(name string) bool {
		return slices.Contains(too, name) && left[name] != nil && right[name] != nil &&
			c.disjoint(left[name], right[name], depth+1)
	})
}

// dereferenced returns the schema that a schema's references lead to; nil if it is no
// object.
func (c *schemaCheck) dereferenced(schema any) map[string]any {
	for range maxFollowed {
		object, _ := schema.(map[string]any)
		ref, ok := object["$ref"].(string)
		if !ok {
			return object
		}

		// A chain that is longer than maxFollowed is taken for no object.
		target := c.resolve(ref)
		if !target.ok {
			return nil
		}
		schema = target.schema
	}
	return nil
}

// kindsOf returns the types of a schema's values, without duplicates, and with number
// for integer; nil: any type.
func kindsOf(object map[string]any, values []any) []string {
	names, _ := typesOf(object)
	for _, v := range values {
		names = append(names, typeNames(v)...)
	}

	// An integer is a number, so that the two have values in common.
	kinds := slices.Clone(names)
	for i, name := range kinds {
		if name == "integer" {
			kinds[i] = "number"
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// equal reports whether two values are equal. If that takes more than the account has, it
// returns true.
func (c *schemaCheck) equal(a, b any) bool {
	m := meter{account: c.account}
	equal := m.equal(a, b)

	return m.end() != nil || equal
}

// enforcedFormat reports whether a schema has a format that grammars enforce.
func enforcedFormat(object map[string]any) bool {
	format, ok := object["format"].(string)
	return ok && slices.Contains(formats, format)
}

// formats are the string formats that xgrammar enforces.
var formats = []string{
	"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer", "relative-json-pointer",
	"time", "uri", "uri-reference", "uri-template", "uuid",
}
