package jsontext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Joined is a text of several parts. A lone part is not copied. The zero value
// is empty.
type Joined struct {
	// None is empty.
	parts []string
}

// Add appends a part.
func (j *Joined) Add(part string) {
	if part != "" {
		j.parts = append(j.parts, part)
	}
}

// AddPart appends a text part of a message. It begins on a new line if neither the
// text before it ends with white space nor the part begins with it: clients send
// separate texts as parts, such as a reminder and the user's words.
func (j *Joined) AddPart(part string) {
	// Two texts without anything between them would be one word to the model.
	if len(j.parts) > 0 && part != "" {
		last, _ := utf8.DecodeLastRuneInString(j.parts[len(j.parts)-1])
		next, _ := utf8.DecodeRuneInString(part)
		if !unicode.IsSpace(last) && !unicode.IsSpace(next) {
			j.Add("\n")
		}
	}
	j.Add(part)
}

// NewLine begins another line, unless the text is empty.
func (j *Joined) NewLine() {
	if len(j.parts) > 0 {
		j.Add("\n")
	}
}

// String is the text.
func (j *Joined) String() string {
	return strings.Join(j.parts, "")
}
