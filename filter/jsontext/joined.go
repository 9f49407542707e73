package jsontext

import "strings"

// Joined is a text of several parts. A lone part is not copied. The zero value
// is empty.
type Joined struct {
	first string // while there is one part
	text  strings.Builder
}

// Add appends a part.
func (j *Joined) Add(part string) {
	switch {
	case part == "":
	case j.text.Len() > 0:
		j.text.WriteString(part)
	case j.first == "":
		j.first = part
	default:
		j.text.Grow(len(j.first) + len(part))
		j.text.WriteString(j.first)
		j.text.WriteString(part)
		j.first = ""
	}
}

// NewLine begins another line, unless the text is empty.
func (j *Joined) NewLine() {
	if j.first != "" || j.text.Len() > 0 {
		j.Add("\n")
	}
}

// String is the text.
func (j *Joined) String() string {
	if j.text.Len() > 0 {
		return j.text.String()
	}
	return j.first
}
