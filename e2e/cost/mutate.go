package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// mutator changes trees.
type mutator struct {
	r *rand.Rand
	// seeds are what it takes subtrees from.
	seeds []*node
	// lend returns one of the dearest trees, from which it takes texts.
	lend func() *node
}

// mutate changes a tree in one to three ways. Many of the changes are made where repetition
// is dear, because such places are few: at the elements of arrays, in strings that are
// written in a language of their own, and at what is largest already.
func (m *mutator) mutate(root *node) {
	for range 1 + m.r.IntN(3) {
		all := places(root)
		if len(all) == 0 {
			return
		}

		// A change that is listed more than once is chosen more often.
		at, changes := m.anywhere(all)
		// Two of three changes are for places that chance would seldom choose.
		switch m.r.IntN(6) {
		case 0, 1:
			if written := languages(all); len(written) > 0 {
				at = written[m.r.IntN(len(written))]
				changes = []change{m.words, m.words, m.words, m.piece, m.piece, m.cut, m.borrow, m.borrow}
			}
		case 2:
			if objects := elements(all); len(objects) > 0 {
				at = objects[m.r.IntN(len(objects))]
				changes = []change{m.repeat, m.repeat, m.remove}
			}
		case 3:
			at = largest(all)
			changes = []change{m.double, m.double, m.double, m.cut}
		}
		changes[m.r.IntN(len(changes))](at, all)
	}
}

// change is a way to change the value at a place; all are the places of its tree.
type change func(at place, all []place)

// anywhere returns any place, and what can be changed there.
func (m *mutator) anywhere(all []place) (at place, changes []change) {
	at = all[m.r.IntN(len(all))]
	changes = []change{
		m.repeat, m.repeat, m.double, m.nest, m.twice, m.copy, m.graft, m.words, m.piece, m.remove, m.remove, m.number,
	}
	if at.schema != nil {
		schemas := []change{m.variants, m.share, m.level, m.constants, m.keyword}
		changes = append(slices.Concat(changes, schemas, schemas), m.share, m.level)
	}
	return at, changes
}

// count is how often something is repeated: mostly little, seldom much.
func (m *mutator) count() int { return 2 + m.r.IntN(1<<(1+m.r.IntN(8))) }

// repeat repeats an element of an array in its place, or a member under new names.
func (m *mutator) repeat(at place, _ []place) { m.again(at, m.count()-1) }

func (m *mutator) again(at place, times int) {
	p, v := at.parent, at.value()
	for range times {
		if p.kind == '{' {
			// A new name each time: some readers keep one member of a name only.
			p.add(p.keys[at.index]+strconv.Itoa(len(p.keys)), v.clone())
		} else {
			p.list = slices.Insert(p.list, at.index, v.clone())
		}
	}
}

// double repeats the elements of an array in their order, or what is inside of a string.
func (m *mutator) double(at place, _ []place) {
	v := at.value()
	switch v.kind {
	case '[':
		for _, element := range v.list {
			v.list = append(v.list, element.clone())
		}
	case '"':
		// The two ends stay where they are, such as the brackets of a pattern.
		i, j := m.within(v.raw, 0, len(v.raw)/2), m.within(v.raw, len(v.raw)/2, len(v.raw))
		v.raw = v.raw[:j] + v.raw[i:j] + v.raw[j:]
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
	// A member keeps its name, which says how its value is read.
	if at.parent.kind == '{' && from.parent.kind == '{' && m.r.IntN(2) == 0 {
		at.parent.add(from.parent.keys[from.index], from.value().clone())
		return
	}
	at.parent.list[at.index] = from.value().clone()
}

// brackets are what many words can stand in, in all of the languages.
var brackets = []string{"[]", "[]", "()", "{}", `""`}

// words inserts words of a string's language, the same one many times.
func (m *mutator) words(at place, _ []place) {
	v := at.value()
	if v.kind != '"' {
		return
	}

	// Some words are foreign to the language, since errors have a cost as well.
	vocabulary := vocabularies[at.key()]
	if vocabulary == nil || m.r.IntN(8) == 0 {
		vocabulary = texts
	}
	word := vocabulary[m.r.IntN(len(vocabulary))]
	// Letters that are in no token together are the dearest to tokenize.
	if m.r.IntN(8) == 0 {
		letters := make([]byte, 64)
		for i := range letters {
			letters[i] = "abcdefghijklmnopqrstuvwxyzABCDEF"[m.r.IntN(32)]
		}
		word = string(letters)
	}

	// One word is a construct of its own; many are a repetition, which brackets often make another one.
	times, bare := 1, 3
	if m.r.IntN(2) == 0 {
		times, bare = m.times(len(word)), 1
	}
	inserted := strings.Repeat(word, times)
	if m.r.IntN(1+bare) == 0 {
		pair := brackets[m.r.IntN(len(brackets))]
		inserted = pair[:1] + inserted + pair[1:]
	}
	i := m.position(v.raw)
	v.raw = v.raw[:i] + inserted + v.raw[i:]
}

// piece repeats a piece of a string in its place.
func (m *mutator) piece(at place, _ []place) {
	v := at.value()
	if v.kind != '"' || v.raw == "" {
		return
	}
	i, j := m.position(v.raw), m.position(v.raw)
	if i > j {
		i, j = j, i
	}

	// A piece without characters has no repetition.
	if i < j {
		v.raw = v.raw[:i] + strings.Repeat(v.raw[i:j], m.times(j-i)) + v.raw[j:]
	}
}

// borrow copies the longest text of a language from a tree that is dear. What is dear in one place
// can be dearer in another one, where it is read more often.
func (m *mutator) borrow(at place, _ []place) {
	written := languages(places(m.lend()))
	if len(written) > 0 && at.value().kind == '"' {
		at.value().raw = largest(written).value().raw
	}
}

// cut removes a piece of a string.
func (m *mutator) cut(at place, _ []place) {
	v := at.value()
	if i, j := m.position(v.raw), m.position(v.raw); i < j {
		v.raw = v.raw[:i] + v.raw[j:]
	}
}

// maxText bounds what a string grows by at once, in bytes.
const maxText = 32 << 10

// times is how often a text of some bytes is repeated: mostly little, seldom much.
func (m *mutator) times(bytes int) int {
	return min(1+m.r.IntN(1<<(1+m.r.IntN(13))), max(maxText/bytes, 1))
}

// position is a place between two characters of a text. Its beginning, its end, and the ends of
// what is in brackets are likelier than others.
func (m *mutator) position(text string) int {
	end := m.r.IntN(8)
	switch end {
	case 0:
		return 0
	case 1:
		return len(text)
	}

	i := m.within(text, 0, len(text))
	// Two such ends are all that is in a pair of brackets, which is then repeated or removed.
	if next := strings.IndexAny(text[i:], "[](){}"); end < 5 && next >= 0 {
		i += next
		if strings.IndexByte("[({", text[i]) >= 0 {
			i++
		}
	}
	return i
}

// within is a place between two characters of a part of a text.
func (m *mutator) within(text string, from, to int) int {
	i := from + m.r.IntN(to-from+1)
	// A cut inside a character would be replaced when the text is written as JSON.
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return i
}

// remove removes a value, so that what costs nothing goes away.
func (m *mutator) remove(at place, _ []place) {
	p := at.parent
	p.list = slices.Delete(p.list, at.index, at.index+1)
	if p.kind == '{' {
		p.keys = slices.Delete(p.keys, at.index, at.index+1)
	}
}

var numbers = []string{
	"0", "1", "16", "-1", "1e9", "9007199254740993", "0.1", "null", "true", "1" + strings.Repeat("0", 40),
}

// number changes a number.
func (m *mutator) number(at place, _ []place) {
	if v := at.value(); v.kind == 0 {
		v.raw = numbers[m.r.IntN(len(numbers))]
	}
}

// unions are the keywords whose variants are schemas.
var unions = []string{"anyOf", "anyOf", "oneOf", "allOf"}

// keyword adds a keyword to a schema.
func (m *mutator) keyword(at place, _ []place) {
	v := at.value()
	if v.kind != '{' {
		return
	}
	added, err := parse(keywords[m.r.IntN(len(keywords))])
	if err != nil {
		panic(err) // the list is at fault
	}
	for i, key := range added.keys {
		v.add(key, added.list[i])
	}
}

// variants makes a value the variants of a union, all of them equal.
func (m *mutator) variants(at place, _ []place) {
	at.parent.list[at.index] = union(m.union(), at.value(), 2+m.r.IntN(8))
}

func (m *mutator) union() string { return unions[m.r.IntN(len(unions))] }

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
	// A schema cannot be among its own definitions: the tree would have a cycle.
	if at.value() == at.schema {
		return
	}
	definitions := at.schema.member("$defs")
	// It is a definition already, to which others refer by its name.
	if at.parent == definitions {
		return
	}
	name := "d" + strconv.Itoa(len(definitions.keys))
	definitions.add(name, at.value())
	v := reference(name)
	// A union is where the cost multiplies, one reference only adds.
	if m.r.IntN(3) > 0 {
		v = union(m.union(), v, 2+m.r.IntN(8))
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

	// One keyword and one number for all levels, which multiply to a power.
	i, keyword, variants := m.r.IntN(len(definitions.keys)), m.union(), 2+m.r.IntN(8)
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
