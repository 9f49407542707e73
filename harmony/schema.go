package harmony

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxSchemaDepth is the maximum depth of a schema's types, including those of
// references.
const maxSchemaDepth = 64

// schemaWriter writes a JSON Schema as a TypeScript type.
//
// Where openai-harmony 0.0.8 writes a correct type, the bytes are the same.
// Differences: anyOf is a union; allOf and siblings of $ref are an
// intersection; $ref is followed within the schema, and a reference to a schema
// that is being written becomes any; const and enum of any type are literals;
// null is a type; unions in arrays are in parentheses; tuples and
// additionalProperties are written; schemas without a type are typed by their
// keywords; every line of a comment is a comment; strings, and property names
// that need it, are quoted.
type schemaWriter struct {
	// What was written so far, from start on.

	dst   []byte
	start int

	// Where references lead.

	root *value
	// indexes has the members of large objects by name.
	indexes map[*value]map[string]*value
	// open has the targets of the references that are being written.
	open []*value

	// What ends the writing.

	depth int
	// steps is how many are left.
	steps int
	err   error
}

// shape describes what the text around a written type depends on.
type shape struct {
	// compound: it is a union or intersection, which needs parentheses before [].
	compound bool
	// null is part of the union.
	null bool
	// comment: the type ends with a line comment.
	comment bool
}

// appendType appends the type of a function's parameters. size is the length of
// their JSON. work contains the steps of the types written before.
func appendType(dst []byte, schema *value, size int, work *schemaWork) ([]byte, error) {
	own, more := size*stepsPerByte, work.left()
	w := schemaWriter{dst: dst, start: len(dst), root: schema, open: []*value{schema}, steps: own + more}

	// What the size allows is free. Only steps beyond it are taken from the message's other tools.
	defer func() { work.spent += max(0, more-w.steps) }()

	// The reference writes this comment only above an object.
	if text, ok := schema.get("description").str(); ok && len(schema.get("oneOf").array()) == 0 && isObject(schema) {
		w.comment("", text)
	}

	sh := w.schema(schema, "")
	w.endComment(sh, "")

	switch {
	case w.err != nil:
		return dst, w.err
	case len(w.dst)-w.start > maxSchemaText:
		return dst, errSchemaTooLarge
	}
	return w.dst, nil
}

func (w *schemaWriter) add(parts ...string) {
	for _, p := range parts {
		w.dst = append(w.dst, p...)
	}
}

// endComment starts a new line if the type ends with a line comment.
func (w *schemaWriter) endComment(sh shape, indent string) {
	if sh.comment {
		w.add("\n", indent)
	}
}

// comment writes text as line comments.
func (w *schemaWriter) comment(indent, text string) {
	for line := range commentLines(text) {
		w.add(indent, "// ", line, "\n")
	}
}

// schema writes the type of s.
func (w *schemaWriter) schema(s *value, indent string) shape {
	switch {
	case w.err != nil:
		return shape{}
	case w.depth > maxSchemaDepth:
		w.err = fmt.Errorf("its parameters nest deeper than %d types: make them flatter", maxSchemaDepth)
		return shape{}
	case len(w.dst)-w.start > maxSchemaText:
		w.err = errSchemaTooLarge
		return shape{}
	case !w.spend(breadth(s)):
		return shape{}
	case s.kind == kindBool && !s.boolean:
		w.add("never")
		return shape{}
	}

	w.depth++
	defer func() { w.depth-- }()

	parts := w.parts(s)
	if len(parts) == 1 {
		return w.part(parts[0], indent)
	}

	for i, part := range parts {
		if i > 0 {
			w.add(" & ")
		}
		w.parenthesised(indent, func() shape { return w.part(part, indent) })
	}

	if len(parts) == 0 {
		w.add("any")
	}
	return shape{compound: len(parts) > 1}
}

// parenthesised writes a type, in parentheses if it is compound.
func (w *schemaWriter) parenthesised(indent string, write func() shape) {
	start := len(w.dst)
	sh := write()
	w.endComment(sh, indent)

	// That it is compound is known only once it is written, so the parenthesis before it comes last.
	if sh.compound {
		w.dst = slices.Insert(w.dst, start, '(')
		w.add(")")
	}
}

// schemaPart is one of the types whose intersection is the type of a schema.
// Exactly one of own, target and variants is set.
type schemaPart struct {
	// own is the schema, for the type of its own keywords.
	own *value
	// target is a referenced schema.
	target *value

	// variants are those of oneOf or anyOf.
	variants []value
	// listed: the variants are written one per line.
	listed bool
}

func (w *schemaWriter) part(p schemaPart, indent string) shape {
	switch {
	case p.own != nil:
		return w.own(p.own, indent)
	case p.variants == nil:
		return w.reference(p.target, indent)
	case p.listed:
		return w.listedUnion(p.variants, indent)
	}
	return w.inlineUnion(p.variants, indent)
}

// parts returns the parts of a schema. The type of its own keywords is first;
// it is omitted if it adds nothing to the other parts.
func (w *schemaWriter) parts(s *value) []schemaPart {
	var parts []schemaPart
	if ref, ok := s.get("$ref").str(); ok {
		if target := w.resolve(ref); target != nil {
			parts = append(parts, schemaPart{target: target})
		}
	}

	all := s.get("allOf").array()
	for i := range all {
		if w.structural(&all[i]) {
			parts = append(parts, schemaPart{target: &all[i]})
		}
	}

	for _, keyword := range []string{"oneOf", "anyOf"} {
		variants := s.get(keyword).array()
		// A union of constraints only, such as one of lists "required", says nothing of the type.
		if slices.ContainsFunc(variants, func(v value) bool { return w.structural(&v) }) {
			// The reference lists the variants of oneOf. Those of anyOf, which it cannot write, are
			// listed for their comments only.
			listed := keyword == "oneOf" || slices.ContainsFunc(variants, hasComment)
			parts = append(parts, schemaPart{variants: variants, listed: listed})
		}
	}

	literal := s.get("const") != nil || len(s.get("enum").array()) > 0
	detailed := literal || len(s.get("properties").object()) > 0 || s.get("items") != nil || s.get("prefixItems") != nil

	// A bare "type" beside a reference or a union says nothing new.
	if detailed || len(parts) == 0 && isStructural(s) {
		parts = slices.Insert(parts, 0, schemaPart{own: s})
	}

	return parts
}

// structural is isStructural for a subschema that may not be written, so it
// counts the step.
func (w *schemaWriter) structural(s *value) bool {
	return w.spend(len(s.members)) && isStructural(s)
}

// isStructural reports whether a schema has a type of its own. A schema that
// only constrains another one has none.
func isStructural(s *value) bool {
	if s.kind == kindBool {
		return !s.boolean
	}

	for _, keyword := range []string{
		"type", "properties", "items", "prefixItems", "enum", "const",
		"$ref", "oneOf", "anyOf", "allOf", "additionalProperties",
	} {
		if s.get(keyword) != nil {
			return true
		}
	}

	return false
}

func isObject(s *value) bool {
	if name, ok := s.get("type").str(); ok {
		return name == "object"
	}
	return s.get("type") == nil && (s.get("properties") != nil || s.get("additionalProperties") != nil)
}

func isArray(s *value) bool {
	if name, ok := s.get("type").str(); ok {
		return name == "array"
	}
	return s.get("type") == nil && (s.get("items") != nil || s.get("prefixItems") != nil)
}

// reference writes a referenced schema, or any if that is being written
// already.
func (w *schemaWriter) reference(target *value, indent string) shape {
	if slices.Contains(w.open, target) {
		w.add("any")
		return shape{}
	}

	w.open = append(w.open, target)
	sh := w.schema(target, indent)
	w.open = w.open[:len(w.open)-1]
	return sh
}

// resolve returns the target of a JSON pointer within the schema, or nil.
func (w *schemaWriter) resolve(ref string) *value {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || !w.spend(len(ref)/bytesPerStep) {
		return nil
	}

	anchor, pointer, more := strings.Cut(pointer, "/")
	switch {
	case anchor != "":
		return nil
	case !more:
		return w.root
	}

	// Without a list of the steps: a few references that lead to each other are resolved millions of times.
	target := w.root
	for step := range strings.SplitSeq(pointer, "/") {
		// In this order, as RFC 6901 says: the other one would make a slash of ~01.
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")

		if items := target.array(); items != nil {
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(items) {
				return nil
			}
			target = &items[n]
		} else {
			target = w.member(target, step)
		}
	}
	return target
}

// member is get with an index for large objects, for use by many references.
func (w *schemaWriter) member(v *value, name string) *value {
	if len(v.object()) < manyMembers {
		return v.get(name)
	}

	members := w.indexes[v]
	if members == nil {
		members = make(map[string]*value, len(v.members))
		for i := range v.members {
			members[v.members[i].name] = &v.members[i].value
		}
		if w.indexes == nil {
			w.indexes = map[*value]map[string]*value{}
		}
		w.indexes[v] = members
	}
	return members[name]
}

// own writes the type of the keywords of s itself.
func (w *schemaWriter) own(s *value, indent string) shape {
	types := s.get("type").array()
	if c := s.get("const"); c != nil {
		w.dst = c.appendJSON(w.dst)
		return shape{null: c.kind == kindNull}
	}

	if enum := s.get("enum").array(); len(enum) > 0 {
		return w.enum(enum, slices.ContainsFunc(types, func(t value) bool { return t.text == "null" }))
	}

	switch {
	case len(types) > 0:
		return w.typeList(s, types, indent)
	case isObject(s):
		w.object(s, indent)
	case isArray(s):
		w.array(s, indent)
	default:
		name, _ := s.get("type").str()
		return w.named(s, name, indent)
	}
	return shape{}
}

// enum writes a union of literals.
func (w *schemaWriter) enum(values []value, nullable bool) shape {
	null := false
	for i := range values {
		if i > 0 {
			w.add(" | ")
		}
		w.dst = values[i].appendJSON(w.dst)
		null = null || values[i].kind == kindNull
	}

	if nullable && !null {
		w.add(" | null")
		null = true
	}

	return shape{compound: len(values) > 1 || null, null: null}
}

// typeList writes a union of named types without duplicates.
func (w *schemaWriter) typeList(s *value, types []value, indent string) shape {
	seen := map[string]bool{}
	sh := shape{}
	for i := range types {
		name := types[i].text
		if name == "integer" {
			name = "number"
		}

		if types[i].kind != kindString || seen[name] {
			continue
		}

		if seen[name] = true; len(seen) > 1 {
			w.add(" | ")
		}
		sh.null = w.named(s, name, indent).null || sh.null
	}

	if len(seen) == 0 {
		w.add("any")
	}
	sh.compound = len(seen) > 1
	return sh
}

func (w *schemaWriter) named(s *value, name, indent string) shape {
	switch name {
	case "string", "number", "boolean":
		w.add(name)
	case "integer":
		w.add("number")
	case "null":
		w.add("null")
		return shape{null: true}
	case "object":
		w.object(s, indent)
	case "array":
		w.array(s, indent)
	default:
		w.add("any")
	}
	return shape{}
}

func (w *schemaWriter) array(s *value, indent string) {
	items := s.get("items")
	tuple := s.get("prefixItems").array()
	if tuple == nil {
		// Before draft 2020-12, a list in "items" is a tuple.
		tuple = items.array() // older drafts of JSON Schema
		if tuple != nil {
			items = s.get("additionalItems")
		}
	}

	if len(tuple) == 0 {
		if items == nil {
			w.add("Array<any>")
			return
		}
		w.items(items, indent)
		return
	}

	w.add("[")
	for i := range tuple {
		if i > 0 {
			w.add(", ")
		}
		w.endComment(w.nullable(&tuple[i], w.schema(&tuple[i], indent), indent), indent)
	}

	if items != nil && (items.kind != kindBool || items.boolean) {
		w.add(", ...")
		w.items(items, indent)
	}
	w.add("]")
}

// items writes an array type.
func (w *schemaWriter) items(s *value, indent string) {
	w.parenthesised(indent, func() shape {
		if text, ok := s.get("description").str(); ok && isObject(s) {
			w.comment(indent, text)
		}
		return w.nullable(s, w.schema(s, indent), indent)
	})
	w.add("[]")
}

// listedUnion writes one variant per line with its comments.
func (w *schemaWriter) listedUnion(variants []value, indent string) shape {
	sh := shape{compound: true}
	for i := range variants {
		w.add("\n", indent, " | ")
		v := w.variant(&variants[i], "", indent)

		sh.null = sh.null || v.null
		sh.comment = v.comment
	}
	return sh
}

func hasComment(s value) bool {
	_, described := s.get("description").str()
	return described || s.get("default") != nil
}

// inlineUnion writes the variants on one line without duplicates.
func (w *schemaWriter) inlineUnion(variants []value, indent string) shape {
	sh := shape{}
	seen := map[string]bool{}
	for i := range variants {
		start := len(w.dst)
		v := w.nullable(&variants[i], w.schema(&variants[i], indent), indent)
		w.endComment(v, indent)

		// Different schemas can be the same type, so the written text is what tells duplicates.
		text := string(w.dst[start:])
		w.dst = w.dst[:start]

		if seen[text] {
			w.spend(len(text) / bytesPerStep)
			continue
		}

		if seen[text] = true; len(seen) > 1 {
			w.add(" | ")
		}
		w.add(text)
		sh.null = sh.null || v.null
		sh.compound = sh.compound || v.compound
	}

	sh.compound = sh.compound || len(seen) > 1
	return sh
}

// nullable adds "| null" if the OpenAPI keyword nullable is true.
func (w *schemaWriter) nullable(s *value, sh shape, indent string) shape {
	if !s.get("nullable").isTrue() || sh.null {
		return sh
	}

	w.endComment(sh, indent)
	w.add(" | null")
	return shape{compound: true, null: true}
}

// variant writes one variant of a union and the comment after it. It omits a
// description that is equal to written.
func (w *schemaWriter) variant(v *value, written, indent string) shape {
	sh := w.nullable(v, w.schema(v, indent+"   "), indent)

	description, _ := v.get("description").str()
	if description == written {
		description = ""
	}

	separator := " // "
	if sh.comment {
		separator = " "
	}

	// A variant has one line, so the lines of its description are joined.
	if description != "" {
		w.add(separator, strings.Join(slices.Collect(commentLines(description)), " "))
		sh.comment = true
		separator = " "
	}

	if def := v.get("default"); def != nil {
		w.add(separator)
		w.defaultValue(v, def)
		sh.comment = true
	}

	return sh
}

// defaultValue writes a default as JSON, or without quotes if it is a word of
// an enum.
func (w *schemaWriter) defaultValue(s, def *value) {
	w.add("default: ")

	text, isString := def.str()
	isHidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if isString && len(s.get("enum").array()) > 0 && !strings.ContainsFunc(text, isHidden) {
		w.add(text)
		return
	}

	w.dst = def.appendJSON(w.dst)
}
