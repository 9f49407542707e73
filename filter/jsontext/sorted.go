package jsontext

import (
	"cmp"
	"slices"

	"github.com/tidwall/gjson"
)

// AppendSorted appends a JSON value without the white space between its tokens, and with
// the members of its objects sorted by name. Members of one name stay in their order, and
// so do the elements of arrays. raw must be valid JSON in UTF-8, and no deeper than the
// caller allows.
func AppendSorted(dst []byte, raw string) []byte { return appendSorted(dst, gjson.Parse(raw)) }

func appendSorted(dst []byte, v gjson.Result) []byte {
	switch {
	case v.IsObject():
		type member struct{ name, value gjson.Result }
		var members []member
		v.ForEach(func(name, value gjson.Result) bool {
			members = append(members, member{name, value})
			return true
		})

		// Stable, as readers of JSON take the first or the last of two members of one name.
		slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name.Str, b.name.Str) })

		writer := Writer(dst).Open()
		for _, m := range members {
			writer = append(Writer(AppendCompact(writer.Element(), m.name.Raw)), ':')
			writer = appendSorted(writer, m.value)
		}
		return writer.Close()

	case v.IsArray():
		writer := Writer(dst).OpenList()
		v.ForEach(func(_, value gjson.Result) bool {
			writer = appendSorted(writer.Element(), value)
			return true
		})
		return writer.CloseList()
	}
	return AppendCompact(dst, v.Raw)
}
