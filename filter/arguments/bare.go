package arguments

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// endBare ends arguments that do not begin as an object: an object in a code fence, an
// object in a JSON string, or the text itself if the tool takes one.
func (r *Repairer) endBare() {
	text := r.held
	r.held = nil
	if inner, ok := unfenced(text); ok && r.repairAs(inner, Fence) {
		return
	}
	var inner string
	isString := bytes.HasPrefix(bytes.TrimSpace(text), []byte{'"'}) && json.Unmarshal(text, &inner) == nil
	if isString && r.fits(inner) && r.repairAs([]byte(inner), Nested) {
		return
	}
	if r.text == "" || !isString && json.Valid(text) || !utf8.Valid(text) || len(bytes.TrimSpace(text)) == 0 {
		r.out = append(r.out, text...)
		r.state = broken
		return
	}
	if !isString {
		inner = string(text)
	}
	object, err := json.Marshal(map[string]string{r.text: inner})
	if err != nil {
		r.out = append(r.out, text...)
		r.state = broken
		return
	}
	r.out = append(r.out, object...)
	r.repairs[RawText], r.state = true, done
}

// fits reports whether an object in a string can be the arguments themselves: of a tool
// whose only parameter is a text it has to have that one.
func (r *Repairer) fits(inner string) bool {
	if r.text == "" {
		return true
	}
	var object map[string]json.RawMessage
	return json.Unmarshal([]byte(inner), &object) == nil && object[r.text] != nil
}

// repairAs passes on a part of the text in place of all of it, if that is an object or
// can be made one.
func (r *Repairer) repairAs(inner []byte, kind Kind) bool {
	part := Repairer{}
	part.push(inner)
	if part.state != done {
		return false
	}
	r.out = append(r.out, bytes.TrimSpace(part.out)...)
	for k, made := range part.repairs {
		r.repairs[k] = r.repairs[k] || made
	}
	r.repairs[kind], r.state = true, done
	return true
}

// unfenced returns the text between the lines of a code fence around all of it.
func unfenced(text []byte) (inner []byte, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("```"))
	if !ok {
		return nil, false
	}
	if rest, ok = bytes.CutSuffix(rest, []byte("```")); !ok {
		return nil, false
	}
	_, inner, ok = bytes.Cut(rest, []byte("\n"))
	return inner, ok
}
