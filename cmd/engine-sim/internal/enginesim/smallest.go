package enginesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// This file generates minimal values of TypeScript types and JSON Schemas: required
// members only, formatted like Python's json module.

// maxDepth bounds recursive types and schemas.
const maxDepth = 64

var errType = errors.New("not a type")

// smallestArgument returns a minimal value of an argument's type, {} if that is not
// an object.
func smallestArgument(typ string) string {
	p := typeParser{s: typ}
	value, err := p.union("", 0)
	if err != nil || !strings.HasPrefix(value, "{") {
		return "{}"
	}
	return value
}

// typeParser parses the TypeScript that describes tools in Harmony prompts.
type typeParser struct {
	s string
	i int
}

var (
	typeSpace   = regexp.MustCompile(`^(?:\s+|//[^\n]*)*`)
	typeMember  = regexp.MustCompile(`^(?:"((?:[^"\\]|\\.)*)"|([^\s:?,;{}]+))(\??):\s`)
	typeWord    = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|[^\s,;|&<>(){}\[\]]+)`)
	typeLiteral = regexp.MustCompile(`^(?:-?\d|true$|false$|null$)`)
)

func (p *typeParser) take(literal string) bool {
	p.i += len(typeSpace.FindString(p.s[p.i:]))
	if strings.HasPrefix(p.s[p.i:], literal) {
		p.i += len(literal)
		return true
	}
	return false
}

// union returns a value of the first alternative.
func (p *typeParser) union(name string, depth int) (string, error) {
	if depth > maxDepth {
		return "", errType
	}
	p.take("|")
	first, err := p.one(name, depth)
	// The others are read only to find where the type ends.
	for err == nil && p.take("|") {
		_, err = p.one(name, depth)
	}
	return first, err
}

func (p *typeParser) one(name string, depth int) (value string, err error) {
	switch {
	case p.take("{"):
		value, err = p.object(depth)
	case p.take("("):
		value, err = p.union(name, depth+1)
		p.take(")")
	case p.take("Array<"):
		value, err = p.union(name, depth+1)
		value = "[" + value + "]"
		p.take(">")
	default:
		value, err = p.word(name)
	}

	for strings.HasPrefix(p.s[p.i:], "[]") {
		p.i += 2
		value = "[" + value + "]"
	}
	return value, err
}

func (p *typeParser) object(depth int) (string, error) {
	var b strings.Builder
	b.WriteByte('{')
	for !p.take("}") {
		m := typeMember.FindStringSubmatch(p.s[p.i:])
		// A later line of a description: only its first line is a comment.
		if m == nil {
			_, rest, ok := strings.Cut(p.s[p.i:], "\n")
			if !ok {
				return "", errType
			}
			p.i = len(p.s) - len(rest)
			continue
		}

		key := m[1] + m[2]
		p.i += len(m[0])
		value, err := p.union(key, depth+1)
		if err != nil {
			return "", err
		}

		_ = p.take(",") || p.take(";")
		// Its type has been read all the same, to find the next member.
		if m[3] == "?" {
			continue
		}

		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.WriteString(quote(key) + ": " + value)
	}

	b.WriteByte('}')
	return b.String(), nil
}

func (p *typeParser) word(name string) (string, error) {
	w := typeWord.FindString(p.s[p.i:])
	if w == "" {
		return "", errType
	}
	p.i += len(w)

	if w[0] == '"' {
		var s string
		if json.Unmarshal([]byte(w), &s) != nil {
			return "", errType
		}
		return quote(s), nil
	}

	if typeLiteral.MatchString(w) {
		return w, nil
	}

	switch w {
	case "number", "integer":
		return "1", nil
	case "boolean":
		return "true", nil
	case "object":
		return "{}", nil
	}
	// Every other word is a string: an enumeration, a name that is not known, or "string" itself.
	return quote(stringValue(name)), nil
}

func stringValue(name string) string {
	if name == "location" || name == "city" {
		return "San Francisco, CA"
	}
	return "example"
}

// maxSchemaSteps bounds the schemas that are visited for one value. bytesPerStep
// bytes of schema count as one step more. maxInstance bounds the bytes of values.
// Both are needed because references multiply schemas and values.
const (
	maxSchemaSteps = 50_000
	bytesPerStep   = 1 << 10
	maxInstance    = 1 << 20
)

// schemaWalk is a walk through a JSON Schema and its references.
type schemaWalk struct {
	root  gjson.Result
	steps int // visited schemas
	size  int // bytes of values, counted again in each enclosing value
}

// step counts a schema and reports whether the walk may go on.
func (w *schemaWalk) step(s gjson.Result, depth int) bool {
	w.steps += 1 + len(s.Raw)/bytesPerStep
	return depth <= maxDepth && w.steps <= maxSchemaSteps
}

// resolve returns the schema of a reference.
func (w *schemaWalk) resolve(ref string) gjson.Result {
	// Every reference parses the whole schema again.
	w.steps += len(w.root.Raw) / bytesPerStep
	return resolve(w.root, ref)
}

// resolve returns the schema of a reference within root.
func resolve(root gjson.Result, ref string) gjson.Result {
	at, pointer := root, strings.TrimLeft(ref, "#/")
	if pointer == "" {
		return root
	}

	for part := range strings.SplitSeq(pointer, "/") {
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		// Only after the percent signs, and ~1 before ~0, as RFC 6901 says.
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)

		if at.IsObject() {
			at = at.Map()[part]
		} else {
			at = at.Get(gjson.Escape(part))
		}
	}
	return at
}

// python formats a JSON value with a space after each comma and colon.
func python(v gjson.Result) string {
	var parts []string
	switch {
	case v.IsObject():
		v.ForEach(func(k, x gjson.Result) bool {
			parts = append(parts, quote(k.String())+": "+python(x))
			return true
		})
		return "{" + strings.Join(parts, ", ") + "}"

	case v.IsArray():
		for _, x := range v.Array() {
			parts = append(parts, python(x))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case v.Type == gjson.String:
		return quote(v.Str)
	}
	return v.Raw
}

func quote(s string) string { return string(appendQuoted(nil, s)) }

// appendQuoted appends s as a JSON string with as few escapes as possible.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func isJSON(s string) bool { return json.Valid(bytes.TrimSpace([]byte(s))) }
