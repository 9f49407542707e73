package harmony

import "strings"

// referenceType writes a schema as TypeScript exactly as openai-harmony 0.0.8,
// including its errors. appendType writes the correct form.
type referenceType struct{ dst []byte }

func appendReferenceType(dst []byte, schema *value, indent string) ([]byte, error) {
	w := referenceType{dst: dst}
	w.schema(schema, indent)

	if len(w.dst)-len(dst) > maxSchemaText {
		return dst, errSchemaTooLarge
	}
	return w.dst, nil
}

func (w *referenceType) add(parts ...string) {
	for _, p := range parts {
		w.dst = append(w.dst, p...)
	}
}

func (w *referenceType) schema(s *value, indent string) {
	if oneOf := s.get("oneOf"); oneOf != nil && oneOf.kind == kindArray {
		w.oneOf(oneOf.items, indent)
		return
	}

	if w.typeList(s.get("type").array()) {
		return
	}

	name, _ := s.get("type").str()
	switch name {
	case "object":
		w.object(s, indent)
	case "string":
		w.string(s)
	case "number", "integer":
		w.add("number")
	case "boolean":
		w.add("boolean")
	case "array":
		if items := s.get("items"); items != nil {
			w.schema(items, indent)
			w.add("[]")
		} else {
			w.add("Array<any>")
		}
	default:
		w.add("any")
	}
}

func (w *referenceType) typeList(types []value) bool {
	written := false
	for i := range types {
		name, ok := types[i].str()
		if !ok {
			continue
		}

		if written {
			w.add(" | ")
		}

		if name == "integer" {
			name = "number"
		}
		w.add(name)
		written = true
	}
	return written
}

func (w *referenceType) string(s *value) {
	written := false
	for _, v := range s.get("enum").array() {
		text, ok := v.str()
		if !ok {
			continue
		}

		if written {
			w.add(" | ")
		}
		w.add(`"`, text, `"`)
		written = true
	}

	if !written {
		w.add("string")
	}
}

// nullable adds "| null" unless the type written from start on contains "null".
func (w *referenceType) nullable(s *value, start int) {
	if s.get("nullable").isTrue() && !strings.Contains(string(w.dst[start:]), "null") {
		w.add(" | null")
	}
}

// defaultValue adds a default. Strings are quoted; strings of enums are not if
// plain is set.
func (w *referenceType) defaultValue(s, def *value, plain bool) {
	text, isString := def.str()
	isEnum := len(s.get("enum").array()) > 0
	switch {
	case isString && !isEnum:
		w.add(`default: "`, text, `"`)
	case isString && plain:
		w.add("default: ", text)
	default:
		w.add("default: ")
		w.dst = def.appendJSON(w.dst)
	}
}

// variant writes one variant of oneOf and the comment after it.
func (w *referenceType) variant(v *value, indent string, describe func(string) bool, plainDefault bool) {
	start := len(w.dst)
	w.schema(v, indent+"   ")
	w.nullable(v, start)

	separator := " // "
	if text, ok := v.get("description").str(); ok && describe(text) {
		w.add(separator, text)
		separator = " "
	}

	if def := v.get("default"); def != nil {
		w.add(separator)
		w.defaultValue(v, def, plainDefault)
	}
}

func (w *referenceType) oneOf(variants []value, indent string) {
	for i := range variants {
		w.add("\n", indent, " | ")
		w.variant(&variants[i], indent, func(string) bool { return true }, false)
	}
}

func (w *referenceType) object(s *value, indent string) {
	if text, ok := s.get("description").str(); ok {
		w.add(indent, "// ", text, "\n")
	}

	w.add("{\n")
	required := requiredNames(s)
	properties := s.get("properties").object()
	for i := range properties {
		p := &properties[i]
		w.comments(&p.value, indent)
		mark := "?"
		if required[p.name] {
			mark = ""
		}

		if oneOf := p.value.get("oneOf"); oneOf != nil && oneOf.kind == kindArray {
			w.oneOfProperty(p.name+mark, &p.value, oneOf.items, indent)
			continue
		}

		w.add(indent, p.name, mark, ": ")
		start := len(w.dst)
		w.schema(&p.value, indent+"    ")
		w.nullable(&p.value, start)
		w.add(",")

		if def := p.value.get("default"); def != nil && p.value.get("oneOf") == nil {
			w.add(" // ")
			w.defaultValue(&p.value, def, true)
		}
		w.add("\n")
	}

	w.add(indent, "}")
}

// comments writes the title, description and examples above a property.
func (w *referenceType) comments(p *value, indent string) {
	if text, ok := p.get("title").str(); ok {
		w.add(indent, "// ", text, "\n", indent, "//\n")
	}

	if text, ok := p.get("description").str(); ok && p.get("oneOf") == nil {
		w.add(indent, "// ", text, "\n")
	}

	if examples := p.get("examples").array(); len(examples) > 0 {
		w.add(indent, "// Examples:\n")
		for i := range examples {
			if text, ok := examples[i].str(); ok {
				w.add(indent, `// - "`, text, "\"\n")
			}
		}
	}
}

func (w *referenceType) oneOfProperty(name string, p *value, variants []value, indent string) {
	description, described := p.get("description").str()
	above := described

	// The reference leaves a description that the first variant repeats to that variant.
	if len(variants) > 0 {
		if first, ok := variants[0].get("description").str(); ok && first == description {
			above = false
		}
	}

	if above {
		w.add(indent, "// ", description, "\n")
	}

	if def := p.get("default"); def != nil {
		w.add(indent, "// ")
		w.defaultValue(p, def, true)
		w.add("\n")
	}

	w.add(indent, name, ":\n")
	for i := range variants {
		w.add(indent, " | ")
		w.variant(&variants[i], indent, func(text string) bool {
			return (i > 0 || !above) && (!described || text != description)
		}, true)
		w.add("\n")
	}

	w.add(indent, ",\n")
}

// requiredNames returns the set of names in a schema's list "required".
func requiredNames(s *value) map[string]bool {
	names := make(map[string]bool)
	for _, v := range s.get("required").array() {
		if name, ok := v.str(); ok {
			names[name] = true
		}
	}
	return names
}
