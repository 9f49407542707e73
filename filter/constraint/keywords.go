package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// counts are the pairs of keywords for the minimum and the maximum of a length or a
// number.
var counts = [][2]string{{"minLength", "maxLength"}, {"minItems", "maxItems"}, {"minProperties", "maxProperties"}}

// ranges are counts and the pair of numbers.
var ranges = slices.Concat(counts, [][2]string{{"minimum", "maximum"}})

// limits are the keywords that compare a number with their value.
var limits = []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}

// jsonTypes are the types of JSON Schema.
var jsonTypes = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// maxLimit is the largest number that xgrammar can compare with.
const maxLimit = 1 << 63

// checkValues rejects keywords whose values have the wrong type.
func checkValues(object map[string]any) error {
	for _, k := range []string{"$ref", "pattern", "format"} {
		if _, ok := object[k].(string); !ok && object[k] != nil {
			return fmt.Errorf("has a %q that is no string", k)
		}
	}

	if _, ok := typesOf(object); !ok {
		return fmt.Errorf(`has a "type" that is none of %q and no array of them`, jsonTypes)
	}

	if list, ok := object["enum"].([]any); object["enum"] != nil && (!ok || len(list) == 0) {
		return errors.New(`has an "enum" that is no array of values`)
	}
	if _, ok := texts(object["required"]); !ok {
		return errors.New(`has a "required" that is no array of names`)
	}

	for _, pair := range counts {
		for _, k := range pair {
			if x, ok := number(object[k]); !ok || x < 0 || x != math.Trunc(x) {
				return fmt.Errorf("has a %q that is no whole number from 0", k)
			}
		}
	}

	for _, k := range limits {
		if x, ok := number(object[k]); !ok {
			return fmt.Errorf("has a %q that is no number", k)
		} else if k == "multipleOf" && object[k] != nil && x <= 0 {
			return fmt.Errorf("has a %q that is not above 0", k)
		} else if x != math.Trunc(x) && k != "multipleOf" && object["type"] == "integer" {
			return fmt.Errorf("has a %q of an integer that is no whole number", k)
		}
	}
	return nil
}

// number returns the value of a keyword that must be a number or absent.
func number(v any) (x float64, ok bool) {
	n, isNumber := v.(json.Number)
	if !isNumber {
		return 0, v == nil
	}
	x, err := n.Float64()
	return x, err == nil
}

// texts returns the strings of a value that must be an array of strings or absent.
func texts(v any) (all []string, ok bool) {
	list, ok := v.([]any)
	for _, e := range list {
		text, isText := e.(string)
		ok = ok && isText
		all = append(all, text)
	}
	return all, ok || v == nil
}

// typesOf returns the types of a schema, without duplicates; nil if it has no type.
func typesOf(object map[string]any) (names []string, ok bool) {
	switch v := object["type"].(type) {
	case nil:
		return nil, true
	case string:
		names = []string{v}
	default:
		if names, ok = texts(v); !ok || len(names) == 0 {
			return nil, false
		}
		// Neither order nor repetition means anything.
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names, !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(jsonTypes, name) })
}

// checkSatisfiable rejects schemas that no value can follow, as far as grammar
// compilers reject them, and minimums that are too large for grammars.
func checkSatisfiable(object map[string]any) error {
	for _, pair := range ranges {
		least, _ := number(object[pair[0]])
		most, _ := number(object[pair[1]])
		switch {
		// A grammar has to count to a minimum. Large maximums are left out instead.
		case pair[0] != "minimum" && least > MaxCount:
			return fmt.Errorf("has a %q beyond %d", pair[0], MaxCount)
		case object[pair[0]] != nil && object[pair[1]] != nil && least > most:
			return fmt.Errorf("has a %q above its %q", pair[0], pair[1])
		}
	}

	first, _ := object["prefixItems"].([]any)
	if most, _ := number(object["maxItems"]); object["maxItems"] != nil && most < float64(len(first)) {
		return errors.New(`has a "maxItems" below the number of its "prefixItems"`)
	}

	// With rules for names what is required may be one of those.
	if object["patternProperties"] != nil || object["propertyNames"] != nil {
		return nil
	}

	declared, _ := object["properties"].(map[string]any)
	names, _ := texts(object["required"])
	closed := object["additionalProperties"] == false
	for _, name := range names {
		if declared[name] == nil && closed {
			return errors.New(`has a "required" property that is not among its "properties", ` +
				`and "additionalProperties": false`)
		}
	}

	least, _ := number(object["minProperties"])
	if least > float64(len(declared)) && (closed || len(declared) > 0 && object["additionalProperties"] == nil) {
		return errors.New(`has a "minProperties" beyond the number of its "properties", and no "additionalProperties"`)
	}
	return nil
}
