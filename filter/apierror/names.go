package apierror

import (
	"strconv"
	"strings"
)

// The bounds of what an error names: in number, of one name and of all, in bytes.
const (
	maxNamed     = 128
	maxNamedText = 256
	maxAllNamed  = 8 << 10
)

// Names returns names or ids for the text of an error, such as "a", "b" and "c" in quotes,
// each once. An error names all that the client has to change, so that it can repair its
// request in one step; beyond a bound it says how many more there are.
func Names(names []string) string {
	names = unique(names)
	var text strings.Builder
	for i, name := range names {
		more := len(names) - i
		switch {
		case i > 0 && (i == maxNamed || text.Len() > maxAllNamed):
			text.WriteString(" and " + strconv.Itoa(more) + " more")
			return text.String()
		case i > 0 && more == 1:
			text.WriteString(" and ")
		case i > 0:
			text.WriteString(", ")
		}

		if len(name) > maxNamedText {
			// The cut may be in a character.
			name = strings.ToValidUTF8(name[:maxNamedText], "") + "..."
		}
		text.WriteString(strconv.Quote(name))
	}
	return text.String()
}

// unique returns names without those that are there before.
func unique(names []string) []string {
	// Most errors name one.
	if len(names) < 2 {
		return names
	}
	seen := make(map[string]bool, len(names))
	list := make([]string, 0, len(names))
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	return list
}

// One returns the text about one name, or the text about several; each has a %s where the
// names are.
func One(names []string, one, several string) string {
	text := one
	if len(unique(names)) > 1 {
		text = several
	}
	return strings.Replace(text, "%s", Names(names), 1)
}
