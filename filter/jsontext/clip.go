package jsontext

import "strings"

// Clip shortens a text of a client to [MaxShortText] bytes, for errors.
func Clip(text string) string {
	if len(text) > MaxShortText {
		return strings.ToValidUTF8(text[:MaxShortText], "") + "..."
	}
	return text
}
