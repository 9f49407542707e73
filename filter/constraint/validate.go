package constraint

import (
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// maxDepth bounds how many schemas are begun with and not ended: a goroutine's stack is
// bounded too.
const maxDepth = 10_000

// Accepts reports whether a text is one JSON value of the schema. The error is that of the
// account: the check takes more steps than it has, or its context has ended.
func (v *Validator) Accepts(account *work.Account, text []byte) (bool, error) {
	if err := account.Spend(len(text) / digitsOfStep); err != nil {
		return false, err
	}

	value, ok := decoded(account, text)
	if !ok {
		return false, account.Err()
	}

	c := validation{v: v, meter: meter{account: account}}
	ok = c.follows(v.root, value, nil)
	err := c.end()

	return ok && err == nil, err
}

// validation is the validation of a value. After an error of its meter the results mean
// nothing.
type validation struct {
	meter
	v     *Validator
	depth int
	// By pattern.
	matchers map[string]*matcher
	// What came of targets of references.
	trials map[trial]bool
}

// trial is an object or an array, and a schema that it was compared with, by their
// addresses.
type trial struct{ schema, value uintptr }

// stepsOfTrial is what it takes to begin to compare a value with a schema.
const stepsOfTrial = 4

// stepsOfSeen is what it takes to keep that a member or an element was described.
const stepsOfSeen = 8

// evaluated are the members and elements of a value that schemas describe, for
// unevaluatedProperties and unevaluatedItems. nil: nobody asks.
type evaluated struct {
	names    map[string]bool
	elements map[int]bool
	every    struct{ name, element bool }
}

func (c *validation) named(e *evaluated, name string) {
	if e == nil || !c.spend(stepsOfSeen) {
		return
	}
	if e.names == nil {
		e.names = map[string]bool{}
	}
	e.names[name] = true
}

func (c *validation) placed(e *evaluated, i int) {
	if e == nil || !c.spend(stepsOfSeen) {
		return
	}
	if e.elements == nil {
		e.elements = map[int]bool{}
	}
	e.elements[i] = true
}

// add adds what other schemas describe of the same value.
func (c *validation) add(to, from *evaluated) {
	if to == nil {
		return
	}
	for name := range from.names {
		c.named(to, name)
	}
	for i := range from.elements {
		c.placed(to, i)
	}
	to.every.name = to.every.name || from.every.name
	to.every.element = to.every.element || from.every.element
}

// follows reports whether a value follows a schema. What the schema describes of it is
// added to seen, which means nothing if the value does not follow.
func (c *validation) follows(schema, value any, seen *evaluated) bool {
	object, isObject := schema.(map[string]any)
	if !isObject {
		return schema == true
	}
	c.depth++
	if c.depth > maxDepth {
		// A schema that leads to itself through a value costs a level of the stack for each level of
		// the value.
		c.err = work.ErrExceeded
	}
	defer func() { c.depth-- }()
	if !c.spend(stepsOfTrial) {
		return false
	}

	// Keywords about what is left over ask for what this schema describes, and its outer schemas do
	// not.
	own := seen
	if object["unevaluatedProperties"] != nil || object["unevaluatedItems"] != nil {
		own = &evaluated{}
	}

	// In draft 7 a reference replaces everything beside it.
	if ref, ok := object["$ref"].(string); ok {
		if !c.refers(c.v.targets[ref], value, own) {
			return false
		}
		if c.v.draft7 {
			return true
		}
	}

	ok := c.isOfType(object, value) && c.isOfValues(object, value) && c.combined(object, value, own)
	switch value := value.(type) {
	case string:
		ok = ok && c.text(object, value)
	case json.Number:
		ok = ok && c.number(object, value)
	case []any:
		ok = ok && c.array(object, value, own)
	case map[string]any:
		ok = ok && c.object(object, value, own)
	}

	if ok && own != seen {
		c.add(seen, own)
	}

	return ok
}

// refers is follows for the target of a reference. What comes of an object or an array is
// kept: the alternatives of a recursive schema, such as the kinds of a tree's nodes, would
// ask for it again at each level.
func (c *validation) refers(target, value any, seen *evaluated) bool {
	object, isObject := target.(map[string]any)
	key := trial{value: placeOf(value)}
	// Who asks what is described needs more than the result that is kept.
	if seen != nil || !isObject || key.value == 0 {
		return c.follows(target, value, seen)
	}

	key.schema = address(object)
	if ok, known := c.trials[key]; known {
		return ok
	}
	ok := c.follows(target, value, nil)
	if !c.spend(stepsOfSeen) {
		return false
	}
	if c.trials == nil {
		c.trials = map[trial]bool{}
	}
	c.trials[key] = ok
	return ok
}

// placeOf returns the address of an object or an array; 0 for another value, and for one
// without an address of its own.
func placeOf(value any) uintptr {
	switch value := value.(type) {
	case map[string]any:
		return address(value)
	case []any:
		if len(value) > 0 {
			return uintptr(unsafe.Pointer(unsafe.SliceData(value)))
		}
	}
	return 0
}

func (c *validation) isOfType(object map[string]any, value any) bool {
	switch types := object["type"].(type) {
	case string:
		return c.isOf(types, value)
	case []any:
		return slices.ContainsFunc(types, func(name any) bool {
			text, _ := name.(string)
			return c.spend(2) && c.isOf(text, value)
		})
	}

	return true
}

func (c *validation) isOf(name string, value any) bool {
	switch value := value.(type) {
	case string:
		return name == "string"
	case json.Number:
		// 1.0 is an integer.
		return name == "number" || name == "integer" && c.numbers(value) && isWhole(value)
	case bool:
		return name == "boolean"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}

	return name == "null"
}

// isOfValues checks const and enum.
func (c *validation) isOfValues(object map[string]any, value any) bool {
	if fixed, ok := object["const"]; ok && !c.equal(fixed, value) {
		return false
	}
	values, ok := object["enum"].([]any)

	return !ok || slices.ContainsFunc(values, func(one any) bool { return c.spend(1) && c.equal(one, value) })
}

// tried is follows for a schema that the value need not follow.
func (c *validation) tried(s, value any, seen *evaluated) bool {
	if seen == nil {
		return c.follows(s, value, nil)
	}
	// What a schema describes counts only if the value follows it.
	own := &evaluated{}
	if !c.follows(s, value, own) {
		return false
	}
	c.add(seen, own)

	return true
}

// combined checks the schemas for the same value.
func (c *validation) combined(object map[string]any, value any, seen *evaluated) bool {
	all, _ := object["allOf"].([]any)
	for _, schema := range all {
		if !c.follows(schema, value, seen) {
			return false
		}
	}

	// All alternatives are tried if somebody asks what they describe, as each may describe more.
	if list, ok := object["anyOf"].([]any); ok {
		found := false
		for _, schema := range list {
			if found = c.tried(schema, value, seen) || found; found && seen == nil || c.err != nil {
				break
			}
		}
		if !found {
			return false
		}
	}

	if list, ok := object["oneOf"].([]any); ok {
		found := 0
		for _, schema := range list {
			if c.tried(schema, value, seen) {
				found++
			}
			if found > 1 || c.err != nil {
				return false
			}
		}
		if found != 1 {
			return false
		}
	}

	if schema, ok := object["not"]; ok && c.follows(schema, value, nil) {
		return false
	}

	if schema, ok := object["if"]; ok {
		then := "else"
		if c.tried(schema, value, seen) {
			then = "then"
		}
		if schema, ok := object[then]; ok {
			return c.follows(schema, value, seen)
		}
	}

	return true
}

// counted reports whether a number is within the limits of two keywords.
func counted(object map[string]any, least, most string, n int) bool {
	from, _ := number(object[least])
	to, _ := number(object[most])

	return float64(n) >= from && (object[most] == nil || float64(n) <= to)
}

func (c *validation) text(object map[string]any, value string) bool {
	if !c.spend(len(value) / stepBytes) {
		return false
	}

	if (object["minLength"] != nil || object["maxLength"] != nil) &&
		!counted(object, "minLength", "maxLength", utf8.RuneCountInString(value)) {
		return false
	}
	pattern, ok := object["pattern"].(string)

	return !ok || c.matches(pattern, value)
}

func (c *validation) matches(pattern, value string) bool {
	p := c.v.patterns[pattern]
	if p == nil || c.err != nil {
		// A pattern that does not count matches everything.
		return p == nil
	}

	matching := c.matchers[pattern]
	if matching == nil {
		matching = p.matcher()
		if c.matchers == nil {
			c.matchers = map[string]*matcher{}
		}
		c.matchers[pattern] = matching
	}

	ok, err := matching.matches(c.account, []byte(value), false)
	c.err = err

	return ok
}

func (c *validation) number(object map[string]any, value json.Number) bool {
	for _, k := range limits {
		limit, ok := object[k].(json.Number)
		if !ok {
			continue
		}

		if !c.numbers(value, limit) {
			return false
		}

		if k == "multipleOf" {
			if !c.isMultiple(value, limit) {
				return false
			}
			continue
		}

		sign := compareNumbers(value, limit)
		switch {
		case k == "minimum" && sign < 0,
			k == "maximum" && sign > 0,
			k == "exclusiveMinimum" && sign <= 0,
			k == "exclusiveMaximum" && sign >= 0:
			return false
		}
	}

	return true
}

func (c *validation) array(object map[string]any, value []any, seen *evaluated) bool {
	if !c.spend(stepsOfPart/2) || !counted(object, "minItems", "maxItems", len(value)) {
		return false
	}

	// In older drafts a tuple is an array in items, and the rest has a keyword of its own.
	first, _ := object["prefixItems"].([]any)
	rest, described := object["items"]
	if tuple, ok := rest.([]any); ok {
		first = tuple
		rest, described = object["additionalItems"]
	}

	for i, element := range value {
		schema := rest
		switch {
		case i < len(first):
			schema = first[i]
		case !described:
			continue
		}
		c.placed(seen, i)
		if !c.follows(schema, element, nil) {
			return false
		}
	}

	if schema, ok := object["contains"]; ok && !c.contains(object, schema, value, seen) {
		return false
	}

	if object["uniqueItems"] == true && !c.isUnique(value) {
		return false
	}

	if schema, ok := object["unevaluatedItems"]; ok && !seen.every.element {
		for i, element := range value {
			if !seen.elements[i] && !c.follows(schema, element, nil) {
				return false
			}
		}
		seen.every.element = true
	}

	return true
}

func (c *validation) contains(object map[string]any, schema any, value []any, seen *evaluated) bool {
	n := 0
	// All elements are tried: a maximum, and what is described, need them.
	for i, element := range value {
		if c.follows(schema, element, nil) {
			n++
			c.placed(seen, i)
		}
	}

	// Without a minimum one is the least.
	if object["minContains"] == nil && n == 0 {
		return false
	}

	return counted(object, "minContains", "maxContains", n)
}

func (c *validation) isUnique(value []any) bool {
	keys := make(map[string]bool, len(value))
	var key []byte
	for _, element := range value {
		// Equal values have one key, so that each is looked at once.
		key = c.appendKey(key[:0], element)
		if keys[string(key)] || !c.spend(4) {
			return false
		}
		keys[string(key)] = true
	}

	return true
}

func (c *validation) object(object, value map[string]any, seen *evaluated) bool {
	if !counted(object, "minProperties", "maxProperties", len(value)) {
		return false
	}

	required, _ := texts(object["required"])
	if !c.spend(stepsOfPart+2*len(required)) || !hasAll(value, required) || !c.depends(object, value, seen) {
		return false
	}

	if !c.describedMembers(object, value, seen) {
		return false
	}

	if schema, ok := object["propertyNames"]; ok {
		for name := range value {
			if !c.follows(schema, name, nil) {
				return false
			}
		}
	}

	if schema, ok := object["unevaluatedProperties"]; ok && !seen.every.name {
		for name, member := range value {
			if !seen.names[name] && !c.follows(schema, member, nil) {
				return false
			}
		}
		seen.every.name = true
	}

	return true
}

func (c *validation) describedMembers(object, value map[string]any, seen *evaluated) bool {
	declared, _ := object["properties"].(map[string]any)
	patterns, _ := object["patternProperties"].(map[string]any)
	others, closed := object["additionalProperties"]
	if declared == nil && patterns == nil && !closed {
		return true
	}

	// In order, so that the same value takes the same steps.
	for _, name := range slices.Sorted(maps.Keys(value)) {
		if !c.spend(8) {
			return false
		}

		member := value[name]
		s, found := declared[name]
		if found && !c.follows(s, member, nil) {
			return false
		}

		for pattern, s := range patterns {
			if c.matches(pattern, name) {
				if found = true; !c.follows(s, member, nil) {
					return false
				}
			}
		}

		if !found && closed {
			if found = true; !c.follows(others, member, nil) {
				return false
			}
		}

		if found {
			c.named(seen, name)
		}
	}

	return true
}

// depends checks what a value with some members has to have or to follow.
func (c *validation) depends(object, value map[string]any, seen *evaluated) bool {
	for _, k := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		members, _ := object[k].(map[string]any)
		for name, schema := range members {
			if _, has := value[name]; !c.spend(4) || !has {
				continue
			}
			// In draft 7 one keyword has both: names that must be there, and schemas.
			if names, ok := texts(schema); ok {
				if !c.spend(len(names)) || !hasAll(value, names) {
					return false
				}
			} else if !c.follows(schema, value, seen) {
				return false
			}
		}
	}

	return true
}

func hasAll(value map[string]any, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		_, has := value[name]
		return !has
	})
}
