package jsontext

import (
	"unsafe"

	"github.com/tidwall/gjson"
)

// Valid reports whether a text is JSON that nests at most [MaxDepth] levels. It is for
// texts that are strings of a request or output of a model: [Parse] does not bound their
// depth.
func Valid(text string) bool {
	// The bytes are those of the text, without a copy: nothing writes to them.
	return valid(unsafe.Slice(unsafe.StringData(text), len(text)))
}

// IsObject reports whether a text is a JSON object that nests at most [MaxDepth] levels.
func IsObject(text string) bool {
	return Valid(text) && gjson.Parse(text).IsObject()
}
