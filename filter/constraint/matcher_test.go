package constraint

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// accepts reports whether a text belongs to a format. It follows all ways through the
// tree at the same time: ends returns all indexes at which f can end if it begins at
// one of some indexes.
func accepts(f Format, s string) bool { return slices.Contains(ends(f, s, []int{0}), len(s)) }

func ends(f Format, s string, from []int) []int {
	to := make([]int, 0, len(from))
	for _, at := range from {
		to = append(to, endsFrom(f, s, at)...)
	}
	slices.Sort(to)
	return slices.Compact(to)
}

func endsFrom(f Format, s string, at int) []int {
	rest := s[at:]
	switch f := f.(type) {
	case Text:
		if strings.HasPrefix(rest, string(f)) {
			return []int{at + len(f)}
		}

	case Control:
		for name, token := range controls {
			if token == harmony.Token(f) && strings.HasPrefix(rest, name) {
				return []int{at + len(name)}
			}
		}

	case Free:
		var to []int
		for i := 0; i <= len(rest); i++ {
			if spellsControl(rest[:i]) {
				break
			}
			to = append(to, at+i)
		}
		return to

	case Value:
		d := json.NewDecoder(strings.NewReader(rest))
		var v any
		if d.Decode(&v) == nil && of(f.Schema, v) {
			return []int{at + int(d.InputOffset())}
		}

	case Regex:
		if regexp.MustCompile(`^(?:` + string(f) + `)$`).MatchString(rest) {
			return []int{len(s)}
		}

	case Sequence:
		to := []int{at}
		for _, part := range f {
			to = ends(part, s, to)
		}
		return to

	case Choice:
		var to []int
		for _, one := range f {
			to = append(to, endsFrom(one, s, at)...)
		}
		return to

	case Optional:
		return append(endsFrom(f.Format, s, at), at)
	case Many:
		to := []int{at}
		for last := to; len(last) > 0; to = append(to, last...) {
			last = ends(f.Format, s, last)
		}
		return to
	case Some:
		return ends(Many(f), s, endsFrom(f.Format, s, at))
	}

	return nil
}

// of reports whether a value follows one of the schemas of these tests.
func of(schema json.RawMessage, v any) bool {
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	switch string(schema) {
	case string(cityOf):
		_, ok = object["city"].(string)
		return ok && len(object) == 1
	case string(okOf):
		_, ok = object["ok"].(bool)
		return ok
	}
	return true
}
