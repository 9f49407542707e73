package constraint

import (
	"maps"
	"math"
	"slices"
)

// weaker returns a schema of which every keyword can stand in a grammar, and which
// accepts what the schema accepts; added are the keywords, with the values true or
// a type, that it has beside those of the schema's text. Of keywords that cannot
// stand together it keeps those that say most about the value. The schema itself is
// not changed.
func weaker(object map[string]any) (less map[string]any, added []string) {
	w := weakening{object: object}
	w.combinations()
	w.names()
	if required, ok := w.object["required"].([]any); ok && len(required) == 0 {
		// Xgrammar would allow no property.
		w.drop("required")
	}

	for _, k := range limits {
		if x, _ := number(object[k]); math.Abs(x) > maxLimit {
			w.drop(k)
		}
	}

	if w.opensObject() {
		w.add("additionalProperties")
		w.drop("unevaluatedProperties")
		added = append(added, "additionalProperties")
	}

	if openArray(w.object) {
		w.add("items")
		added = append(added, "items")
	}
	return w.object, added
}

type weakening struct {
	object map[string]any
	// Object is a copy.
	copied bool
	// Other properties than the declared ones may be required.
	open bool
}

// copy makes a copy of the schema before its first change: most parts of a schema have none.
func (w *weakening) copy() {
	if !w.copied {
		w.object, w.copied = maps.Clone(w.object), true
	}
}

// drop leaves out a keyword.
func (w *weakening) drop(keyword string) {
	if _, ok := w.object[keyword]; ok {
		w.copy()
		delete(w.object, keyword)
	}
}

// add adds a keyword with the value true.
func (w *weakening) add(keyword string) {
	w.copy()
	w.object[keyword] = true
}

// conditions are the keywords that grammars ignore and that can require properties
// which are declared there only.
var conditions = []string{"if", "dependentSchemas", "dependentRequired", "dependencies"}

// structure are the keywords that describe the members of a value.
var structure = []string{
	"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "items", "prefixItems",
}

// combinations leaves out anyOf, oneOf, allOf and $ref beside keywords that say
// more: grammars would ignore those.
func (w *weakening) combinations() {
	has := func(k string) bool { return w.object[k] != nil }
	w.open = slices.ContainsFunc(conditions, has)

	if all, _ := w.object["allOf"].([]any); len(all) > 1 {
		w.drop("allOf")
		w.open = true
	}

	// These say all about the value, and stay whatever is beside them.
	if has("const") || has("enum") {
		return
	}

	own := slices.ContainsFunc(structure, has)
	if has("type") && slices.ContainsFunc(typedKeywords, has) {
		own = true
	}
	if !own {
		return
	}

	for _, k := range []string{"anyOf", "oneOf", "allOf", "$ref"} {
		if has(k) {
			w.drop(k)
			w.open = true
		}
	}
}

// names leaves out the rules for the names of properties beside declared or required
// properties.
func (w *weakening) names() {
	has := func(k string) bool { return w.object[k] != nil }
	if has("patternProperties") && (has("properties") || has("required")) {
		w.drop("patternProperties")
		if w.object["additionalProperties"] == false && len(undeclared(w.object)) > 0 {
			// They are the patterns'.
			w.drop("additionalProperties")
		}
	}
	if has("propertyNames") && (has("properties") || has("required") || has("patternProperties")) {
		w.drop("propertyNames")
	}
}

// opensObject reports whether a schema allows properties that it does not describe,
// and xgrammar would allow none of them.
func (w *weakening) opensObject() bool {
	has := func(k string) bool { return w.object[k] != nil }
	names, _ := typesOf(w.object)

	switch {
	case names != nil && !slices.Contains(names, "object"), has("additionalProperties"):
		return false
	case has("properties"), has("required"):
		return w.open
	case has("patternProperties"), has("propertyNames"), has("unevaluatedProperties"), onlyCounts(w.object):
		return false
	}
	return names != nil && (has("maxProperties") || has("not") || slices.ContainsFunc(conditions, has))
}

// openArray reports whether a schema restricts the elements of an array and does not
// describe them: for xgrammar there are none then.
func openArray(object map[string]any) bool {
	has := func(k string) bool { return object[k] != nil }
	if names, _ := typesOf(object); !slices.Contains(names, "array") || has("items") || has("additionalItems") ||
		has("unevaluatedItems") {
		return false
	}

	first, _ := object["prefixItems"].([]any)
	least, _ := number(object["minItems"])
	most, _ := number(object["maxItems"])

	restricted := least > 0 || has("maxItems") && most <= MaxCount || has("uniqueItems") || has("contains") ||
		has("minContains") || has("maxContains")
	return len(first) == 0 && restricted || least > float64(len(first))
}

// allows reports whether the types of a schema allow a type.
func allows(object map[string]any, name string) bool {
	names, _ := typesOf(object)
	return names == nil || slices.Contains(names, name)
}
