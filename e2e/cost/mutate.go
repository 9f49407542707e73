package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// mutator changes trees. seeds are what it takes subtrees from.
type mutator struct {
	r     *rand.Rand
	seeds []*node
}

// mutate changes a tree in one to three ways.
func (m *mutator) mutate(root *node) {
	for range 1 + m.r.IntN(3) {
		all := places(root)
		if len(all) == 0 {
			return
		}
		at := all[m.r.IntN(len(all))]
		changes := []func(at place, all []place){m.repeat, m.repeat, m.nest, m.twice, m.copy, m.graft, m.text, m.remove, m.remove, m.number}
		if at.schema != nil {
			schemas := []func(at place, all []place){m.variants, m.share, m.level, m.constants}
			changes = append(slices.Concat(changes, schemas, schemas), m.share, m.level)
		}
		changes[m.r.IntN(len(changes))](at, all)
	}
}

// count is how often something is repeated: mostly little, seldom much.
func (m *mutator) count() int { return 2 + m.r.IntN(1<<(1+m.r.IntN(8))) }

// repeat repeats an element of an array, or a member under new names.
func (m *mutator) repeat(at place, _ []place) {
	v := at.value()
	for range m.count() - 1 {
		if at.parent.kind == '{' {
			at.parent.add(at.parent.keys[at.index]+strconv.Itoa(len(at.parent.keys)), v.clone())
		} else {
			at.parent.list = append(at.parent.list, v.clone())
		}
	}
}

// nest puts a value into one to eight objects or arrays.
func (m *mutator) nest(at place, all []place) {
	v := at.value()
	key := m.key(all)
	for range 1 + m.r.IntN(8) {
		if m.r.IntN(2) == 0 {
			v = &node{kind: '[', list: []*node{v}}
		} else {
			v = &node{kind: '{', keys: []string{key}, list: []*node{v}}
		}
	}
	at.parent.list[at.index] = v
}

// key returns the name of a member that is in the tree.
func (m *mutator) key(all []place) string {
	at := all[m.r.IntN(len(all))]
	if at.parent.kind == '{' {
		return at.parent.keys[at.index]
	}
	return "a"
}

// twice gives a member a second time.
func (m *mutator) twice(at place, _ []place) {
	if at.parent.kind == '{' {
		at.parent.add(at.parent.keys[at.index], at.value().clone())
	}
}

// copy copies a value to the place of another one.
func (m *mutator) copy(at place, all []place) {
	at.parent.list[at.index] = all[m.r.IntN(len(all))].value().clone()
}

// graft copies a value of a seed.
func (m *mutator) graft(at place, _ []place) {
	other := places(m.seeds[m.r.IntN(len(m.seeds))])
	if len(other) == 0 {
		return
	}
	from := other[m.r.IntN(len(other))]
	if at.parent.kind == '{' && from.parent.kind == '{' && m.r.IntN(2) == 0 {
		at.parent.add(from.parent.keys[from.index], from.value().clone())
		return
	}
	at.parent.list[at.index] = from.value().clone()
}

// texts are what strings grow by: dear to tokenize, to escape or to compare.
var texts = []string{"a", " ", "\n", "7", "é", "🙂", "<|start|>", "\"", "\x01", "\u2028", "qzx jv", "aB3$", "{\"a\":"}

// text makes a string longer, or another one.
func (m *mutator) text(at place, _ []place) {
	v := at.value()
	if v.kind != '"' {
		return
	}
	piece := texts[m.r.IntN(len(texts))]
	if m.r.IntN(4) == 0 { // no word of the vocabulary
		letters := make([]byte, 64)
		for i := range letters {
			letters[i] = "abcdefghijklmnopqrstuvwxyzABCDEF"[m.r.IntN(32)]
		}
		piece = string(letters)
	}
	v.raw += strings.Repeat(piece, m.count())
}

// remove removes a value, so that what costs nothing goes away.
func (m *mutator) remove(at place, _ []place) {
	p := at.parent
	p.list = slices.Delete(p.list, at.index, at.index+1)
	if p.kind == '{' {
		p.keys = slices.Delete(p.keys, at.index, at.index+1)
	}
}

// number changes a number.
func (m *mutator) number(at place, _ []place) {
	if v := at.value(); v.kind == 0 {
		v.raw = []string{"0", "1", "16", "-1", "1e9", "9007199254740993", "0.1", "null", "true", "1" + strings.Repeat("0", 40)}[m.r.IntN(10)]
	}
}

// unions are the keywords whose variants are schemas.
var unions = []string{"anyOf", "anyOf", "oneOf", "allOf"}

// variants makes a value the variants of a union, all of them equal.
func (m *mutator) variants(at place, _ []place) {
	at.parent.list[at.index] = union(m.keyword(), at.value(), 2+m.r.IntN(8))
}

func (m *mutator) keyword() string { return unions[m.r.IntN(len(unions))] }

// union returns a union of equal variants.
func union(keyword string, v *node, variants int) *node {
	all := &node{kind: '['}
	for range variants {
		all.list = append(all.list, v.clone())
	}
	return &node{kind: '{', keys: []string{keyword}, list: []*node{all}}
}

// share makes a value a definition of its schema, and refers to it from its place:
// once, or as the variants of a union. Done again to the union, each level multiplies
// what following the references costs.
func (m *mutator) share(at place, _ []place) {
	if at.value() == at.schema {
		return
	}
	definitions := at.schema.member("$defs")
	if at.parent == definitions {
		return
	}
	name := "d" + strconv.Itoa(len(definitions.keys))
	definitions.add(name, at.value())
	v := reference(name)
	if m.r.IntN(3) > 0 {
		v = union(m.keyword(), v, 2+m.r.IntN(8))
	}
	at.parent.list[at.index] = v
}

// level puts one to eight levels between a definition and those that refer to it: the
// definition moves to a new name, and its own one becomes a union of references to the
// next level.
func (m *mutator) level(at place, _ []place) {
	definitions := at.schema.member("$defs")
	if len(definitions.keys) == 0 {
		return
	}
	i, keyword, variants := m.r.IntN(len(definitions.keys)), m.keyword(), 2+m.r.IntN(8)
	for range 1 + m.r.IntN(8) {
		name := "d" + strconv.Itoa(len(definitions.keys))
		definitions.add(name, definitions.list[i])
		definitions.list[i] = union(keyword, reference(name), variants)
		i = len(definitions.keys) - 1
	}
}

// reference returns a reference to a definition.
func reference(name string) *node {
	return &node{kind: '{', keys: []string{"$ref"}, list: []*node{{kind: '"', raw: "#/$defs/" + name}}}
}

// constants makes a value a union or an enum of many different constants.
func (m *mutator) constants(at place, _ []place) {
	values := &node{kind: '['}
	for i := range m.count() {
		values.list = append(values.list, &node{raw: strconv.Itoa(i)})
	}
	if m.r.IntN(2) == 0 {
		at.parent.list[at.index] = &node{kind: '{', keys: []string{"enum"}, list: []*node{values}}
		return
	}
	for i, v := range values.list {
		values.list[i] = &node{kind: '{', keys: []string{"const"}, list: []*node{v}}
	}
	at.parent.list[at.index] = &node{kind: '{', keys: []string{"anyOf"}, list: []*node{values}}
}
