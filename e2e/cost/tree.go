package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
)

// node is a JSON value. Unlike a map, an object keeps the order of its members, and may
// have one twice.
type node struct {
	// kind is '{', '[', '"' or 0: a number, true, false or null.
	kind byte
	// raw is of a string its content without escapes, of kind 0 its JSON.
	raw string

	// keys are the names of an object's members, list their values or an array's elements.
	keys []string
	list []*node
}

// parse parses one JSON value.
func parse(text string) (*node, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	// A number keeps its digits: as a float, a long one would lose what makes it dear.
	d.UseNumber()
	n, err := parseValue(d)
	if err != nil {
		return nil, err
	}

	// The decoder reads one value and leaves the rest.
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the value")
	}
	return n, nil
}

func parseValue(d *json.Decoder) (*node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		return parseList(d, byte(v))
	case string:
		return &node{kind: '"', raw: v}, nil
	case json.Number:
		return &node{raw: v.String()}, nil
	case bool:
		return &node{raw: strconv.FormatBool(v)}, nil
	}
	return &node{raw: "null"}, nil
}

func parseList(d *json.Decoder, kind byte) (*node, error) {
	n := &node{kind: kind}
	for d.More() {
		if kind == '{' {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}

			// The decoder has checked that a member begins with a text.
			n.keys = append(n.keys, key.(string))
		}
		v, err := parseValue(d)
		if err != nil {
			return nil, err
		}
		n.list = append(n.list, v)
	}

	// The closing bracket, which More does not take.
	_, err := d.Token()
	return n, err
}

// append appends the JSON of n, but no more than about limit bytes: what is longer is
// not worth to be written to its end.
func (n *node) append(dst []byte, limit int) []byte {
	if len(dst) > limit {
		return dst
	}
	switch n.kind {
	case '{', '[':
		dst = append(dst, n.kind)
		for i, v := range n.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			if n.kind == '{' {
				dst = append(appendText(dst, n.keys[i]), ':')
			}
			dst = v.append(dst, limit)
		}
		return append(dst, n.kind+2) // the closing bracket in ASCII
	case '"':
		return appendText(dst, n.raw)
	}
	return append(dst, n.raw...)
}

func appendText(dst []byte, s string) []byte {
	text, _ := json.Marshal(s) // of a string there is no error
	return append(dst, text...)
}

// clone returns a deep copy.
func (n *node) clone() *node {
	// The keys too: members are added to the copy.
	c := &node{kind: n.kind, raw: n.raw, keys: append([]string(nil), n.keys...)}
	for _, v := range n.list {
		c.list = append(c.list, v.clone())
	}
	return c
}

// place is where a value stands in a tree.
type place struct {
	parent *node
	index  int
	// schema is the outermost object around the value that is a JSON Schema; nil: it is in none.
	schema *node
}

// value returns the value at the place.
func (p place) value() *node { return p.parent.list[p.index] }

// key returns the name of the member at the place; "" if it is an element of an array.
func (p place) key() string {
	if p.parent.kind != '{' {
		return ""
	}
	return p.parent.keys[p.index]
}

// languages returns the places of the strings that have a vocabulary of their own.
func languages(all []place) []place {
	var written []place
	for _, p := range all {
		if p.value().kind == '"' && vocabularies[p.key()] != nil {
			written = append(written, p)
		}
	}
	return written
}

// elements returns the places of the objects that are elements of arrays: messages, items,
// tools. Of equal ones that follow one another it returns the first, so that those that are
// repeated do not hide the others.
func elements(all []place) []place {
	var objects []place
	for _, p := range all {
		if p.parent.kind != '[' || p.value().kind != '{' || p.index > 0 && p.value().equal(p.parent.list[p.index-1]) {
			continue
		}
		objects = append(objects, p)
	}
	return objects
}

// equal reports whether two values are the same, with their members in the same order.
func (n *node) equal(other *node) bool {
	return n.kind == other.kind && n.raw == other.raw &&
		slices.Equal(n.keys, other.keys) && slices.EqualFunc(n.list, other.list, (*node).equal)
}

// largest returns the place of the longest string, array or object.
func largest(all []place) place {
	size := func(v *node) int { return len(v.raw) + elementBytes*len(v.list) }
	return slices.MaxFunc(all, func(a, b place) int { return size(a.value()) - size(b.value()) })
}

// pathTo returns the places from the one below n to a place, the outermost first.
func pathTo(n *node, to place) []place {
	for i, v := range n.list {
		if n == to.parent && i == to.index {
			return []place{to}
		}
		if path := pathTo(v, to); path != nil {
			return append([]place{{parent: n, index: i}}, path...)
		}
	}
	return nil
}

// elementBytes is how many bytes of a string are as many as an element.
const elementBytes = 16

// schemaKeys are the members of requests and of listings that hold JSON Schemas.
var schemaKeys = map[string]bool{
	"parameters": true, "schema": true, "input_schema": true, "inputSchema": true,
	"json": true,
}

// places lists the places of all values below n, at most 20,000.
func places(n *node) []place {
	var all []place
	var walk func(n, schema *node)
	walk = func(n, schema *node) {
		for i, v := range n.list {
			// The list is made for each mutation, and most of a large tree is a repetition of the rest.
			if len(all) == 20_000 {
				return
			}
			within := schema
			// The outermost schema has the definitions that references name.
			if n.kind == '{' && within == nil && schemaKeys[n.keys[i]] && v.kind == '{' {
				within = v
			}
			all = append(all, place{n, i, within})
			walk(v, within)
		}
	}
	walk(n, nil)
	return all
}

// member returns the value of a member, which is added as an empty object if it is
// missing.
func (n *node) member(key string) *node {
	for i, k := range n.keys {
		// A mutation may have made it something else.
		if k == key && n.list[i].kind == '{' {
			return n.list[i]
		}
	}
	v := &node{kind: '{'}
	n.add(key, v)
	return v
}

func (n *node) add(key string, v *node) {
	n.keys = append(n.keys, key)
	n.list = append(n.list, v)
}
