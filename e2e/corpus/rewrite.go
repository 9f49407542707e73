package main

import (
	"encoding/json"
	"strconv"
	"strings"
)

// place is where a string of a JSON text stands: the members around it, outermost first. Elements
// of a list are at the place of the list.
type place []string

// last returns the innermost member, or the n-th from there.
func (p place) last(n int) string {
	if len(p) <= n {
		return ""
	}
	return p[len(p)-1-n]
}

// has reports whether one of the members around has one of these names.
func (p place) has(names map[string]bool) bool {
	for _, name := range p {
		if names[name] {
			return true
		}
	}
	return false
}

// rewriter changes strings of a JSON text. All else of the text stays as it is written: spaces,
// numbers, the order of members.
type rewriter struct {
	// name changes the name of a member, whose place is that of its object; value a string.
	name  func(at place, name string) string
	value func(at place, value string) string
}

// rewrite returns a valid JSON text with its strings changed.
func (w *rewriter) rewrite(at place, text string) string {
	var out strings.Builder
	// Of each object and list that is open: the place, and whether a name comes next.
	type level struct {
		at     place
		object bool
		name   bool
	}
	open := []level{{at: at}}

	for i := 0; i < len(text); i++ {
		top := &open[len(open)-1]
		switch c := text[i]; c {
		case '{', '[':
			inside := level{at: top.at, object: c == '{', name: c == '{'}
			if top.object {
				// The value of a member: its name was noted behind the object's place.
				top.at = top.at[:len(top.at):len(top.at)]
			}
			open = append(open, inside)
			out.WriteByte(c)
		case '}', ']':
			open = open[:len(open)-1]
			out.WriteByte(c)
		case ',':
			if top.object {
				top.at, top.name = top.at[:len(top.at)-1], true
			}
			out.WriteByte(c)
		case '"':
			end := closing(text, i)
			raw := text[i : end+1]
			i = end
			value := unquoted(raw)
			switch {
			case top.object && top.name:
				out.WriteString(requoted(raw, value, w.name(top.at, value)))
				top.at, top.name = append(top.at[:len(top.at):len(top.at)], value), false
			default:
				out.WriteString(requoted(raw, value, w.value(top.at, value)))
			}
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// closing returns where the string ends that begins at i.
func closing(text string, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i, len(text)-1)
}

func unquoted(raw string) string {
	var value string
	if err := json.Unmarshal([]byte(raw), &value); err != nil {
		return raw
	}
	return value
}

// requoted returns a changed string as JSON, or the text of one that has not changed.
func requoted(raw, before, after string) string {
	if before == after {
		return raw
	}
	return quoted(after)
}

func quoted(s string) string {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(out.String(), "\n")
}
