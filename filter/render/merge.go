package render

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// merged is one chunk of Chat Completions that says what several say: vLLM's answer to
// a chunk has one. The values of a member become one by what they are, and not by its name,
// so that no member is lost that package chat writes, now or later: see [valueKind].
type merged struct {
	// What the answer has of the stream, and not of the chunks.
	id      string
	created int64
	model   string
	index   int
	// There is a choice, and the usage is wanted.
	choice bool
	usage  bool

	// What the chunks say, and what they say of their choice: all of them are of one.
	chunk   value
	content value
}

// add adds a chunk.
func (m *merged) add(chunk gjson.Result) {
	chunk.ForEach(func(key, v gjson.Result) bool {
		switch name := key.Str; name {
		// The answer has those of the whole stream: see append.
		case "id", "object", "created", "model":
		case "choices":
			m.chunk.member(name)
			m.content.add(v.Get("0"), false)
		default:
			m.chunk.member(name).add(v, false)
		}
		return true
	})
}

// append appends the chunk as JSON.
func (m *merged) append(dst []byte) []byte {
	choices := []byte("[]")
	if m.choice {
		// A reply of one choice has the index 0, also where the stream has several.
		m.content.kind = object
		m.content.member("index").raw = strconv.AppendInt(nil, int64(m.index), 10)
		m.content.member("delta").kind = object
		m.content.member("finish_reason").orNull()
		choices = append(m.content.append([]byte("[")), ']')
	}
	m.chunk.member("choices").raw = choices

	// vLLM's answer has a usage of null where the chunk had none.
	if !m.usage {
		*m.chunk.member("usage") = value{}
	}
	m.chunk.member("usage").orNull()

	dst = jsontext.AppendString(append(dst, `{"id":`...), m.id)
	dst = strconv.AppendInt(append(dst, `,"object":"chat.completion.chunk","created":`...), m.created, 10)
	dst = jsontext.AppendString(append(dst, `,"model":`...), m.model)
	for i := range m.chunk.members {
		dst = m.chunk.members[i].append(append(dst, ','))
	}
	return append(dst, '}')
}

// valueKind is how the values of a member become one.
type valueKind uint8

const (
	// single: the last one counts, and of a text in a delta each is the next piece.
	single valueKind = iota
	// list: the elements follow one another.
	list
	// indexed: a list whose elements have an index. Those of the same index become one.
	indexed
	// object: member by member.
	object
)

// value is the value of a member, as several chunks have it.
type value struct {
	kind valueKind
	// raw is the JSON of a single value, and the elements of a list with commas between.
	raw []byte
	// elements are indexed, and places has where they are by their index: a chunk can have
	// thousands of calls.
	elements []value
	places   map[string]int
	members  []member
}

// member is a member of an object. They stand in the order in which they came first.
type member struct {
	name string
	value
}

// wholeTexts are the texts in a delta that come at once. Of all others each chunk has a piece.
var wholeTexts = map[string]bool{"role": true, "id": true, "type": true, "name": true}

// add adds what another chunk has. pieces says that a text is a piece of the whole one, which it
// is in a delta.
func (v *value) add(more gjson.Result, pieces bool) {
	switch {
	case more.IsObject():
		v.addMembers(more, pieces)
	case more.IsArray():
		v.kind = max(v.kind, list)
		more.ForEach(func(_, element gjson.Result) bool {
			v.addElement(element, pieces)
			return true
		})
	// What a chunk has known is not unknown to the next one.
	case more.Type == gjson.Null:
		v.orNull()
	case more.Type == gjson.String && pieces && len(v.raw) > 0:
		v.raw = append(v.raw[:len(v.raw)-1], more.Raw[1:]...)
	default:
		v.raw = append(v.raw[:0], more.Raw...)
	}
}

// addMembers adds the members of an object.
func (v *value) addMembers(more gjson.Result, pieces bool) {
	v.kind = object
	more.ForEach(func(key, child gjson.Result) bool {
		// A null in a delta, as the content beside the role, is no text.
		if pieces && child.Type == gjson.Null {
			return true
		}

		inDelta := pieces || key.Str == "delta"
		v.member(key.Str).add(child, inDelta && !wholeTexts[key.Str])
		return true
	})
}

// addElement adds an element of a list: a call and a piece of its arguments have an index.
func (v *value) addElement(element gjson.Result, pieces bool) {
	index := element.Get("index")
	if !index.Exists() {
		if len(v.raw) > 0 {
			v.raw = append(v.raw, ',')
		}
		v.raw = append(v.raw, element.Raw...)
		return
	}

	v.kind = indexed
	if v.places == nil {
		v.places = map[string]int{}
	}
	i, ok := v.places[index.Raw]
	if !ok {
		i = len(v.elements)
		v.places[index.Raw] = i
		v.elements = append(v.elements, value{})
	}
	v.elements[i].add(element, pieces)
}

// orNull makes a value null that is none yet.
func (v *value) orNull() {
	if v.kind == single && len(v.raw) == 0 {
		v.raw = []byte("null")
	}
}

// member returns the value of an object's member, which is a new one if there is none.
func (v *value) member(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	v.members = append(v.members, member{name: name})
	return &v.members[len(v.members)-1].value
}

// append appends the value as JSON.
func (v *value) append(dst []byte) []byte {
	switch v.kind {
	case single:
		return append(dst, v.raw...)
	case list:
		return append(append(append(dst, '['), v.raw...), ']')

	case indexed:
		dst = append(dst, '[')
		for i := range v.elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.elements[i].append(dst)
		}
		return append(dst, ']')
	}

	dst = append(dst, '{')
	for i := range v.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.members[i].append(dst)
	}
	return append(dst, '}')
}

// append appends the member as JSON.
func (m *member) append(dst []byte) []byte {
	return m.value.append(append(jsontext.AppendString(dst, m.name), ':'))
}
