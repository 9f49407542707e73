package jsontext

import (
	"slices"
	"strings"
)

// maxIgnored bounds how many ignored fields are told.
const maxIgnored = 32

// Ignored lists the fields of a request that are accepted without an effect,
// each once, in the order in which they were added.
type Ignored []string

// Add notes a field by its path, without the path's indexes and fit for a
// header.
func (l *Ignored) Add(path string) {
	index := false
	name := strings.Map(func(c rune) rune {
		switch {
		case c == '[' || c == ']':
			index = c == '['
			return -1
		case index:
			return -1
		case c <= ' ' || c >= 0x7f || c == ',':
			return '?'
		}
		return c
	}, path)
	if len(*l) < maxIgnored && !slices.Contains(*l, name) {
		*l = append(*l, strings.Clone(name)) // it may be a piece of the body
	}
}
