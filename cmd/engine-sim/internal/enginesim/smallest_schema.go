package enginesim

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

var (
	errSchemaWork = errors.New("the simulator finds no value of the schema within its bounds")
	errNoInstance = errors.New("the simulator finds no value of the schema")
)

// smallestInstance returns a minimal value of a JSON Schema. An error means that the
// simulator finds none, or none within its bounds.
func smallestInstance(schema string) (string, error) {
	w := &schemaWalk{root: gjson.Parse(schema)}
	value, ok := w.value([]gjson.Result{w.root}, "", 0, 0)
	switch {
	case w.exhausted():
		return "", errSchemaWork
	case !ok:
		return "", errNoInstance
	}
	return value, nil
}

func (w *schemaWalk) exhausted() bool { return w.steps > maxSchemaSteps || w.size > maxInstance }

// value returns the nth value that is of all of some schemas. name is the property
// whose value it is.
func (w *schemaWalk) value(schemas []gjson.Result, name string, nth, depth int) (string, bool) {
	if depth > maxDepth {
		return "", false
	}
	return w.expand(nil, schemas, name, nth, depth)
}

// expand moves schemas from todo to flat, where they stand without their references
// and alternatives, and returns the value of flat in the end. It tries alternatives
// in order.
func (w *schemaWalk) expand(flat, todo []gjson.Result, name string, nth, depth int) (string, bool) {
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		if !w.step(s, depth) || len(flat) > maxDepth {
			return "", false
		}

		if !s.IsObject() {
			if s.Raw == "false" {
				return "", false
			}
			continue
		}

		// The slice of an alternative that fails must not be changed by the next one.
		flat = append(flat[:len(flat):len(flat)], s)
		if ref := s.Get("$ref"); ref.Exists() {
			todo = append([]gjson.Result{w.resolve(ref.String())}, todo...)
		}
		todo = append(s.Get("allOf").Array(), todo...)

		// The rest of the walk happens inside each alternative, because a later schema may exclude it.
		for _, k := range []string{"anyOf", "oneOf"} {
			if list := s.Get(k); list.Exists() {
				return w.alternative(list.Array(), k == "oneOf", flat, w.without(s, k, todo), name, nth, depth)
			}
		}
	}

	v, ok := w.flatValue(flat, name, nth, depth)
	if ok {
		w.size += len(v)
	}
	return v, ok && !w.exhausted()
}

// without returns todo, preceded by the list of s that follows the list k.
func (w *schemaWalk) without(s gjson.Result, k string, todo []gjson.Result) []gjson.Result {
	if other := s.Get("oneOf"); k == "anyOf" && other.Exists() {
		return append([]gjson.Result{gjson.Parse(`{"oneOf":` + other.Raw + `}`)}, todo...)
	}
	return todo
}

func (w *schemaWalk) alternative(
	list []gjson.Result, one bool, flat, todo []gjson.Result, name string, nth, depth int,
) (string, bool) {
	for i, s := range list {
		// A value of oneOf must fit no other schema of the list. The next value of the same schema may do so.
		for k := range maxAttempts {
			v, ok := w.expand(flat, append([]gjson.Result{s}, todo...), name, nth+k, depth+1)
			if !ok || w.exhausted() {
				break
			}
			if !one || !w.isOfOther(v, list, i, depth) {
				return v, true
			}
		}
	}
	return "", false
}

// maxAttempts bounds the values of one schema of a oneOf that are tried.
const maxAttempts = 16

// isOfOther reports whether a value is of another schema of a list than the ith.
func (w *schemaWalk) isOfOther(v string, list []gjson.Result, i, depth int) bool {
	for j := range list {
		if j != i && w.isOf(gjson.Parse(v), list[j], depth+1) {
			return true
		}
	}
	return false
}

// flatValue returns the nth value of schemas without references and alternatives.
func (w *schemaWalk) flatValue(flat []gjson.Result, name string, nth, depth int) (string, bool) {
	// Constants come first: a type alone would make a value that they exclude.
	for _, k := range []string{"const", "enum"} {
		for _, s := range flat {
			list := s.Get(k)
			switch {
			case !list.Exists():
			case k == "const":
				return w.oneOf([]gjson.Result{list}, flat, nth, depth)
			default:
				return w.oneOf(list.Array(), flat, nth, depth)
			}
		}
	}

	for _, s := range flat {
		// A default is the most natural value, and need not be of the schema.
		if v := s.Get("default"); v.Exists() && nth == 0 {
			if value, ok := w.oneOf([]gjson.Result{v}, flat, 0, depth); ok {
				return value, true
			}
		}
	}

	for _, typ := range typesOfAll(flat) {
		if v, ok := w.ofType(typ, flat, name, nth, depth); ok {
			return v, true
		}
	}

	return "", false
}

// oneOf returns the nth of some values that are of all schemas.
func (w *schemaWalk) oneOf(values, flat []gjson.Result, nth, depth int) (string, bool) {
	for _, v := range values {
		if slices.ContainsFunc(flat, func(s gjson.Result) bool { return !w.isOf(v, s, depth) }) {
			continue
		}
		if nth == 0 {
			w.size += len(v.Raw)
			return python(v), !w.exhausted()
		}
		nth--
	}
	return "", false
}

// typesOfAll returns the types that all schemas allow, in the order of the first one
// that has any. Without a type it follows from the keywords.
func typesOfAll(flat []gjson.Result) []string {
	var types []string
	for _, s := range flat {
		t := s.Get("type")
		if !t.Exists() {
			continue
		}

		var own []string
		for _, name := range t.Array() {
			own = append(own, name.Str)
		}

		if types == nil {
			types = own
			continue
		}

		both := []string{}
		for _, name := range types {
			switch {
			// Every integer is a number.
			case slices.Contains(own, name), name == "integer" && slices.Contains(own, "number"):
				both = append(both, name)
			case name == "number" && slices.Contains(own, "integer"):
				both = append(both, "integer")
			}
		}
		types = both
	}

	if types != nil {
		return types
	}

	// Without a type the first keyword of a kind decides.
	for _, of := range [][]string{
		{
			"object", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
			"minProperties",
		},
		{"array", "items", "prefixItems", "contains", "minItems"},
		{"number", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	} {
		for _, k := range of[1:] {
			if slices.ContainsFunc(flat, func(s gjson.Result) bool { return s.Get(k).Exists() }) {
				return []string{of[0]}
			}
		}
	}

	return []string{"string"}
}

func (w *schemaWalk) ofType(typ string, flat []gjson.Result, name string, nth, depth int) (string, bool) {
	switch typ {
	case "object":
		return w.object(flat, nth, depth)
	case "array":
		return w.array(flat, name, nth, depth)
	case "integer", "number":
		return numberOf(flat, typ == "integer", nth)
	case "boolean":
		return strconv.FormatBool(nth == 0), nth < 2
	case "null":
		return "null", nth == 0
	}

	text, ok := stringOf(flat, name, nth)
	return quote(text), ok
}

// most returns the largest value of a keyword of some schemas, and least the
// smallest.
func most(flat []gjson.Result, k string) (x float64, ok bool) {
	for _, s := range flat {
		if v := s.Get(k); v.Type == gjson.Number && (!ok || v.Num > x) {
			x, ok = v.Num, true
		}
	}
	return x, ok
}

func least(flat []gjson.Result, k string) (x float64, ok bool) {
	for _, s := range flat {
		if v := s.Get(k); v.Type == gjson.Number && (!ok || v.Num < x) {
			x, ok = v.Num, true
		}
	}
	return x, ok
}

// maxElements bounds the elements of an array and the properties of an object.
const maxElements = 1000

// elements returns the schemas of the ith element.
func elements(flat []gjson.Result, i int) (schemas []gjson.Result, described bool) {
	for _, s := range flat {
		first, rest := s.Get("prefixItems"), s.Get("items")
		// Before draft 2020-12, items was the list and additionalItems the rest.
		if rest.IsArray() {
			first, rest = rest, s.Get("additionalItems")
		}
		switch at := first.Get(strconv.Itoa(i)); {
		case first.IsArray() && at.Exists():
			schemas = append(schemas, at)
		case rest.Exists():
			schemas = append(schemas, rest)
		default:
			continue
		}
		described = true
	}
	return schemas, described
}

func (w *schemaWalk) array(flat []gjson.Result, name string, nth, depth int) (string, bool) {
	atLeast, _ := most(flat, "minItems")
	atMost, capped := least(flat, "maxItems")
	n := int(min(atLeast, maxElements))

	// The value shows an element for each positional schema, although JSON Schema accepts fewer.
	for _, s := range flat {
		n = max(n, len(s.Get("prefixItems").Array()))
		if s.Get("items").IsArray() {
			n = max(n, len(s.Get("items").Array()))
		}
	}
	// One element shows the type of the elements.
	if _, described := elements(flat, 0); described {
		n = max(n, 1)
	}

	var contained []gjson.Result
	for _, s := range flat {
		if c := s.Get("contains"); c.Exists() {
			times := 1
			if m := s.Get("minContains"); m.Exists() {
				times = int(min(m.Int(), maxElements))
			}
			for range times {
				contained = append(contained, c)
			}
		}
	}

	n = max(n, len(contained)) + nth
	if capped {
		n = min(n, int(atMost))
	}
	if n > maxElements || float64(n) < atLeast || nth > 0 && capped && n == int(atMost) && nth > int(atMost) {
		return "", false
	}

	unique := slices.ContainsFunc(flat, func(s gjson.Result) bool { return s.Get("uniqueItems").Bool() })
	var values []string
	for i := range n {
		schemas, _ := elements(flat, i)
		// The last elements are those that contains asks for.
		if back := n - 1 - i; back < len(contained) {
			schemas = append(slices.Clone(schemas), contained[back])
		}
		v, ok := w.value(schemas, name, 0, depth+1)
		for k := 1; ok && unique && slices.Contains(values, v); k++ {
			v, ok = w.value(schemas, name, k, depth+1)
		}
		// The elements that are there are enough, unless the array must be longer.
		if !ok {
			if i >= int(atLeast) && !w.exhausted() && i >= len(contained) {
				break
			}
			return "", false
		}
		values = append(values, v)
	}

	return "[" + strings.Join(values, ", ") + "]", true
}
