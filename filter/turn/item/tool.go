package item

import (
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// ToolName is a tool by the client's names, and as such the one identity that a tool has: the
// names that the model sees lead to it.
type ToolName struct {
	// [FunctionsNamespace] for plain functions.
	Namespace string
	// "" where a built-in namespace itself is the tool.
	Name string
	// One of Input.Builtins, and not a tool of the client with the same names.
	Builtin bool
}

// IsCode reports whether the tool is called with code, because it is a namespace.
func (n ToolName) IsCode() bool { return n.Builtin && n.Name == "" }

// MaxNameBytes bounds the names of tools and the ids of calls, in bytes.
const MaxNameBytes = 256

// reserved holds the names that have a meaning for the model.
var reserved = map[string]bool{"functions": true, "browser": true, "python": true, "container": true}

// Recipient returns the recipient of calls of a tool. The tool need not be offered:
// it may be one of the conversation's earlier calls.
func Recipient(t ToolName) string {
	switch {
	case !t.Builtin:
		return ModelNamespace(t.Namespace) + "." + ModelName(t.Name)
	case t.IsCode():
		return t.Namespace
	}
	return t.Namespace + "." + PlainName(t.Name)
}

// ModelNamespace returns the name that the model sees for a client's namespace; "" is that of plain
// functions.
func ModelNamespace(namespace string) string {
	if namespace == "" || namespace == FunctionsNamespace {
		return FunctionsNamespace
	}
	return ModelName(namespace)
}

// ModelName returns the name that the model sees for a client's name: other
// characters than letters of any script, digits, _ and - become _, and a reserved name
// gets a _ at its end.
func ModelName(name string) string {
	if reserved[name] {
		return name + "_"
	}
	return PlainName(name)
}

// PlainName replaces all characters of a name except letters, digits, _ and - by _.
// Letters with marks are composed, as models write them.
func PlainName(name string) string {
	return strings.Map(func(r rune) rune {
		if harmony.IsNameRune(r) {
			return r
		}
		return '_'
	}, norm.NFC.String(name))
}

// IsPlain reports whether a text has only ASCII letters, digits, _ and -.
func IsPlain(text string) bool {
	for i := range len(text) {
		if !IsNameByte(text[i]) {
			return false
		}
	}
	return true
}

// IsNameByte reports whether a byte is an ASCII letter, a digit, _ or -.
func IsNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
