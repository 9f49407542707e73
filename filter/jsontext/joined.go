package jsontext

import (
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// Joined is a text of several parts. A lone part is not copied. The zero value
// is empty.
type Joined struct {
	// first is the first part that is not empty. text has it and those after it; nil: there is
	// no second one. A list of the parts would take more memory than short ones have bytes.
	first string
	text  []byte
}

// Add appends a part.
func (j *Joined) Add(part string) {
	switch {
	case part == "":
	case j.first == "":
		j.first = part
	case j.text == nil:
		j.text = append(append(make([]byte, 0, len(j.first)+2*len(part)), j.first...), part...)
	default:
		j.text = append(j.text, part...)
	}
}

// AddPart appends a text part of a message. It begins on a new line if neither the
// text before it ends with white space nor the part begins with it: clients send
// separate texts as parts, such as a reminder and the user's words.
func (j *Joined) AddPart(part string) {
	// Two texts without anything between them would be one word to the model.
	if j.first != "" && part != "" {
		last, _ := utf8.DecodeLastRuneInString(j.String())
		next, _ := utf8.DecodeRuneInString(part)
		if !unicode.IsSpace(last) && !unicode.IsSpace(next) {
			j.Add("\n")
		}
	}
	j.Add(part)
}

// NewLine begins another line, unless the text is empty.
func (j *Joined) NewLine() {
	if j.first != "" {
		j.Add("\n")
	}
}

// String is the text. It stays as it is where more is added.
func (j *Joined) String() string {
	if j.text == nil {
		return j.first
	}
	// Not a copy: what is there is never written again.
	return unsafe.String(unsafe.SliceData(j.text), len(j.text))
}
