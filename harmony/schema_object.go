package harmony

import (
	"iter"
	"strings"
	"unicode"
)

// The members of an object type: names, comments and types, one a line.

func (w *schemaWriter) object(s *value, indent string) {
	w.add("{\n")
	required := requiredNames(s)

	properties := s.get("properties").object()

	for i := range properties {
		mark := "?"
		if required[properties[i].name] {
			mark = ""
		}
		w.property(propertyName(properties[i].name)+mark, &properties[i].value, indent)
	}

	// Of further properties without a type there is something to say only if there are no others.
	more := s.get("additionalProperties")
	isSchema := more != nil && more.kind == kindObject
	if isSchema && isStructural(more) || len(properties) == 0 && (isSchema || more.isTrue()) {
		w.property("[key: string]", more, indent)
	}

	w.add(indent, "}")
}

// property writes one member of an object type with its comments.
func (w *schemaWriter) property(name string, s *value, indent string) {
	if w.err != nil {
		return
	}

	if title, ok := s.get("title").str(); ok {
		w.comment(indent, title)
		w.add(indent, "//\n")
	}

	description, described := w.description(s)
	if described && s.get("oneOf") == nil {
		w.comment(indent, description)
	}
	w.examples(s.get("examples").array(), indent)
	if described && s.get("oneOf") != nil { // the position in the reference
		w.comment(indent, description)
	}

	if parts := w.parts(s); len(parts) == 1 && parts[0].listed {
		w.listedProperty(name, description, s, parts[0].variants, indent)
		return
	}

	w.add(indent, name, ": ")
	inner := indent + "    "
	w.endComment(w.nullable(s, w.schema(s, inner), inner), indent)
	w.add(",")

	if def := s.get("default"); def != nil {
		w.add(" // ")
		w.defaultValue(s, def)
	}
	w.add("\n")
}

// description returns the description of a schema or, if it has none, of the
// schema that it references.
func (w *schemaWriter) description(s *value) (string, bool) {
	if text, ok := s.get("description").str(); ok {
		return text, true
	}
	if ref, ok := s.get("$ref").str(); ok {
		return w.resolve(ref).get("description").str()
	}
	return "", false
}

func (w *schemaWriter) examples(examples []value, indent string) {
	if len(examples) == 0 {
		return
	}

	w.add(indent, "// Examples:\n")
	for i := range examples {
		w.add(indent, "// - ")
		w.dst = examples[i].appendJSON(w.dst)
		w.add("\n")
	}
}

// listedProperty writes a property whose type is a union with one variant per
// line.
func (w *schemaWriter) listedProperty(name, description string, s *value, variants []value, indent string) {
	if def := s.get("default"); def != nil {
		w.add(indent, "// ")
		w.defaultValue(s, def)
		w.add("\n")
	}

	w.add(indent, name, ":\n")
	null := false
	for i := range variants {
		w.add(indent, " | ")
		null = w.variant(&variants[i], description, indent).null || null
		w.add("\n")
	}

	if s.get("nullable").isTrue() && !null {
		w.add(indent, " | null\n")
	}
	w.add(indent, ",\n")
}

// propertyName quotes a name that is not a TypeScript identifier.
func propertyName(name string) string {
	for i, r := range name {
		if r != '_' && r != '$' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.IsMark(r)) {
			return string(appendQuoted(nil, name))
		}
	}

	if name == "" {
		return `""`
	}
	return name
}

// commentLines yields the lines of text, split at TypeScript's line
// terminators. Text without any is one line, even if it is empty.
func commentLines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			i := strings.IndexAny(text, "\n\r\u2028\u2029")
			if i < 0 {
				break
			}
			if !yield(text[:i]) {
				return
			}

			switch {
			case strings.HasPrefix(text[i:], "\r\n"):
				text = text[i+2:]
			case text[i] == '\n' || text[i] == '\r':
				text = text[i+1:]
			default:
				// U+2028 and U+2029 have three bytes.
				text = text[i+3:]
			}

			// A line break at the end begins no further line.
			if text == "" {
				return
			}
		}
		yield(text)
	}
}
