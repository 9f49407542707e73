package constraint

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

const (
	// maxWays bounds the ways in which a schema leads to one value of a text: a
	// validator follows all of them.
	maxWays = 10_000
	// maxNesting bounds the nesting of arrays and objects in a text.
	maxNesting = 256
	// maxWork bounds the bytes of a text times the ways to one value: the validator
	// formats a value wherever it does not follow a schema.
	maxWork = 16 << 20
)

// part is a schema within a schema.
type part struct {
	schema *jsonschema.Schema
	same   []*part // parts for the same value
	either []*part // parts for inner values, of which at most one applies to a value
	all    []*part // parts for inner values, of which all may apply to a value

	entered, left bool // by order
	ways, deeper  int  // from the part to a value at the current depth, and at the depth before
}

// parts are the schemas within a schema, by their JSON pointers.
type parts map[string]*part

// waysOf returns the maximum number of ways in which a schema leads to one value of a
// text. More than maxWays are an error: with references and alternatives the number
// can grow exponentially with the size of the schema, or the depth of the text.
func waysOf(s *jsonschema.Schema) (most int, err error) {
	all := parts{}
	root := all.add("", s)
	if err := all.refer(root); err != nil {
		return 0, err
	}
	ordered := make([]*part, 0, len(all))
	for _, p := range all {
		if ordered, err = order(ordered, p); err != nil {
			return 0, err
		}
	}
	for depth := range maxNesting {
		changed := countWays(ordered, depth)
		most = max(most, root.ways)
		switch {
		case most > maxWays:
			return 0, fmt.Errorf("leads to the same value in more than %d ways, by alternatives and references that share parts or lead back to themselves, which is too much to check on this model's engine; it needs fewer of them", maxWays)
		case !changed:
			return most, nil
		}
	}
	return most, nil
}

// add adds a schema and the schemas within it.
func (all parts) add(pointer string, s *jsonschema.Schema) *part {
	p := &part{schema: s}
	all[pointer] = p
	one := func(to *[]*part, keyword string, s *jsonschema.Schema) {
		if s != nil {
			*to = append(*to, all.add(pointer+"/"+keyword, s))
		}
	}
	list := func(to *[]*part, keyword string, list []*jsonschema.Schema) {
		for i, s := range list {
			one(to, keyword+"/"+strconv.Itoa(i), s)
		}
	}
	named := func(to *[]*part, keyword string, members map[string]*jsonschema.Schema) {
		for name, s := range members {
			one(to, keyword+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), s)
		}
	}
	list(&p.same, "allOf", s.AllOf)
	list(&p.same, "anyOf", s.AnyOf)
	list(&p.same, "oneOf", s.OneOf)
	one(&p.same, "not", s.Not)
	one(&p.same, "if", s.If)
	one(&p.same, "then", s.Then)
	one(&p.same, "else", s.Else)
	named(&p.same, "dependentSchemas", s.DependentSchemas)
	named(&p.same, "dependencies", s.DependencySchemas)
	named(&p.either, "properties", s.Properties)
	one(&p.either, "additionalProperties", s.AdditionalProperties)
	one(&p.either, "propertyNames", s.PropertyNames) // its values are the names
	list(&p.either, "prefixItems", s.PrefixItems)
	list(&p.either, "items", s.ItemsArray)
	one(&p.either, "items", s.Items)
	one(&p.either, "additionalItems", s.AdditionalItems)
	named(&p.all, "patternProperties", s.PatternProperties)
	one(&p.all, "contains", s.Contains)
	one(&p.all, "unevaluatedItems", s.UnevaluatedItems)
	one(&p.all, "unevaluatedProperties", s.UnevaluatedProperties)
	var unused []*part
	named(&unused, "$defs", s.Defs)
	named(&unused, "definitions", s.Definitions)
	return p
}

// refer resolves the references. Keywords with which a reference is not a JSON
// pointer from the root are an error.
func (all parts) refer(root *part) error {
	for _, p := range all {
		switch {
		case p.schema.DynamicRef != "":
			return errors.New(`uses "$dynamicRef", which is not checked: use "$ref"`)
		case p.schema.ID != "" && p != root:
			return errors.New(`has an "$id" in one of its parts: leave it out`)
		case p.schema.Ref == "":
			continue
		}
		pointer, err := url.PathUnescape(strings.TrimPrefix(p.schema.Ref, "#"))
		target := all[pointer]
		if err != nil || target == nil || p.schema.Ref[0] != '#' {
			return errUnresolved
		}
		p.same = append(p.same, target)
	}
	return nil
}

// order appends a part after the parts for the same value.
func order(ordered []*part, p *part) ([]*part, error) {
	switch {
	case p.left:
		return ordered, nil
	case p.entered:
		return nil, errCycle
	}
	p.entered = true
	for _, s := range p.same {
		var err error
		if ordered, err = order(ordered, s); err != nil {
			return nil, err
		}
	}
	p.left = true
	return append(ordered, p), nil
}

// countWays counts the ways from each part to a value at a depth, given those to a
// value one level less deep. It reports whether the numbers differ.
func countWays(ordered []*part, depth int) (changed bool) {
	for _, p := range ordered {
		p.deeper = p.ways
	}
	for _, p := range ordered {
		ways := 0
		if depth == 0 {
			ways = 1
		}
		for _, inner := range p.either {
			ways = max(ways, inner.deeper)
		}
		for _, inner := range p.all {
			ways += inner.deeper
		}
		for _, s := range p.same {
			ways += s.ways
		}
		p.ways = min(ways, maxWays+1)
		changed = changed || p.ways != p.deeper
	}
	return changed
}
