package jsontext

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// maxIgnored is the most ignored fields that are listed.
const maxIgnored = 32

// Ignored lists the paths of request fields that were accepted and have no
// effect. Each path is listed once, in the order of the calls of Add. At most
// 32 are listed; later ones are dropped.
type Ignored []string

// Add adds a field by its path. Array indexes are removed, and bytes that a
// header value cannot hold become '?'.
func (l *Ignored) Add(path string) {
	index := false

	// One path stands for all elements of an array, or a long one would fill the list.
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

	// The path may be a part of the request's body, which the list must not keep in memory.
	if len(*l) < maxIgnored && !slices.Contains(*l, name) {
		*l = append(*l, strings.Clone(name))
	}
}

// full reports whether no more are listed, so that their paths need not be made.
func (l *Ignored) full() bool { return len(*l) >= maxIgnored }

// AddOthers adds the members of an object that are not known and not null. Of another
// value it adds nothing.
func (l *Ignored) AddOthers(v Field, known ...string) {
	if !v.IsObject() {
		return
	}
	each(v.Result, func(key string, value gjson.Result) bool {
		if value.Type != gjson.Null && !l.full() && !slices.Contains(known, key) {
			l.Add(v.child(key))
		}
		return true
	})
}
