package arguments

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// NewText returns the repairer of a call whose header does not say that it is JSON, of a tool
// with one parameter, a string: gpt-oss writes code as it is, and JSON as well. An object with
// the parameter, whole or one that [New] would repair, is the arguments. Anything else is the
// parameter's value, byte by byte. optional says that a call may leave the parameter out: {} is
// such a call then.
//
// A text is passed on as it comes from the first character on that no such object has there.
// Until then it is held back: {"code": 1}["code"] is code, as its last bracket tells.
func NewText(parameter string, optional bool) *Repairer {
	return &Repairer{parameter: parameter, optional: optional, state: undecided}
}

// decide takes the next piece of an undecided text, as much of it as may be held back. However
// the text is cut, it is decided at the same byte.
func (r *Repairer) decide(piece []byte) (rest []byte) {
	n := min(len(piece), MaxHeld+1-len(r.held))
	r.held = append(r.held, piece[:n]...)

	switch {
	case !r.mayBeObject():
		r.beginText()
	case len(r.held) > MaxHeld:
		r.decideLong()
	}
	return piece[n:]
}

// mayBeObject reports whether an undecided text may be an object, or have one within what
// readWhole takes off it. It looks at each character once.
func (r *Repairer) mayBeObject() bool {
	for !r.begun && r.seen < len(r.held) {
		before, following := r.held[:r.seen], r.held[r.seen:]
		if !utf8.FullRune(following) {
			return true
		}

		c, size := utf8.DecodeRune(following)
		switch {
		case c == '{':
			r.begun = true
			_, ok := new(reading).head(strings.TrimPrefix(string(before), byteOrderMark))
			return ok
		case c == '"' && len(bytes.TrimSpace(before)) == 0:
			r.begun = true
		// What an introduction has: words, a fence, and the brackets of lists. Whether they are one
		// tells the first bracket of the object.
		case !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsSpace(c) &&
			!strings.ContainsRune(".,!?'’:`["+byteOrderMark, c):
			return false
		}
		r.seen += size
	}
	return true
}

// decideLong decides what a text is that cannot be held back any longer. One that is the
// beginning of an object with the parameter is passed on as such.
func (r *Repairer) decideLong() {
	object := New(r.parameter)
	text := object.Push(r.held)
	if object.state == holding || object.state == passing || !object.names.fits {
		r.beginText()
		return
	}

	// The object has what this call returns from here on.
	object.out = slices.Concat(r.out, text)
	*r = *object
}

// endUndecided ends a text that may be an object.
func (r *Repairer) endUndecided() (rest []byte, made Repairs, valid bool) {
	switch {
	// A call without any arguments is one, and no empty text.
	case len(r.held) == 0:
		return nil, made, false
	case r.isWhole():
		r.flush()
		r.state = done
		return r.out, made, true
	}

	object := New(r.parameter)
	text := bytes.Clone(object.Push(r.held))
	rest, made, valid = object.End()
	// What is valid and was not repaired has not the parameter.
	if valid && made != (Repairs{}) && !made[RawText] {
		r.state = done
		return append(text, rest...), made, true
	}

	r.beginText()
	r.endText()
	return r.out, Repairs{RawText: true}, true
}

// isWhole reports whether the text is a JSON object with the parameter, or one that leaves it
// out where it may be left out.
func (r *Repairer) isWhole() bool {
	if !bytes.HasPrefix(bytes.TrimLeft(r.held, " \n\t\r"), []byte{'{'}) || !json.Valid(r.held) {
		return false
	}

	found, empty := false, true
	gjson.ParseBytes(r.held).ForEach(func(name, _ gjson.Result) bool {
		found, empty = name.Str == r.parameter, false
		return !found
	})
	return found || empty && r.optional
}

// beginText passes on the beginning of the object whose only member is the text, and what was
// held back of it.
func (r *Repairer) beginText() {
	r.out = appendText(appendOpening(r.out, r.parameter), r.held)
	r.held = nil
	r.state = textual
}

// endText passes on the end of that object.
func (r *Repairer) endText() {
	r.out = append(r.out, textEnd...)
	r.state = done
}

// textEnd is what is after the text in the object whose only member it is.
const textEnd = `"}`

// appendOpening appends what is before it.
func appendOpening(dst []byte, parameter string) []byte {
	dst = appendText(append(dst, `{"`...), []byte(parameter))
	return append(dst, `":"`...)
}

// appendText appends a piece of a text as a JSON string has it.
func appendText(dst, text []byte) []byte {
	for len(text) > 0 {
		// Most bytes stand for themselves.
		plain := bytes.IndexFunc(text, func(c rune) bool { return c == '"' || c == '\\' || c < ' ' })
		if plain < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:plain]...)

		if c := text[plain]; c < ' ' {
			dst = appendControl(dst, c)
		} else {
			dst = append(dst, '\\', c)
		}
		text = text[plain+1:]
	}
	return dst
}
