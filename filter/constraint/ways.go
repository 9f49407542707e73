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
	// maxWays is the most ways by which a schema may lead to one value of a
	// text: a validator goes all of them.
	maxWays = 10_000
	// maxNesting is how deep the arrays and objects of a text that is checked may
	// be.
	maxNesting = 256
	// maxWork is the most bytes of a text, in all the ways that lead to one of its
	// values, that are checked: the validator writes the value out wherever it is
	// not of a schema.
	maxWork = 16 << 20
)

// part is one schema of a schema.
type part struct {
	schema *jsonschema.Schema
	same   []*part // of the same value
	either []*part // of values in it: of each value one at most
	all    []*part // of values in it: of each value perhaps all

	entered, left bool // by order
	ways, deeper  int  // to a value so many levels down, and to one that is a level less
}

// parts are the schemas of a schema, by their JSON pointers.
type parts map[string]*part

// waysOf is the most ways by which a schema leads to one value of a text. More
// than maxWays are refused: through references and alternatives their number can
// grow as a power of the schema's size, or of the text's depth.
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

// add adds a schema and those that it is made of.
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

// refer follows the references. What would give them another meaning than that
// of a JSON pointer from the root is refused.
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
			return errNowhere
		}
		p.same = append(p.same, target)
	}
	return nil
}

// order appends a part behind what speaks of the same value.
func order(ordered []*part, p *part) ([]*part, error) {
	switch {
	case p.left:
		return ordered, nil
	case p.entered:
		return nil, errCircle
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

// countWays counts the ways from each part to a value that is so many levels
// down, given those to one that is a level less, and tells whether they differ.
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
