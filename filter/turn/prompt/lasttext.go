package prompt

import (
	"unicode"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// lastUserText returns the beginning of the last user's text of items; before, if
// they have none.
func lastUserText(rc *request.Context, before string, items []item.Item) string {
	if rc.Limits.LastUserTextBytes <= 0 {
		return ""
	}

	for i := len(items) - 1; i >= 0; i-- {
		if items[i].Kind == item.User && !items[i].Summary {
			return concise(items[i].Text, rc.Limits.LastUserTextBytes)
		}
	}
	return before
}

// concise returns the beginning of text in at most n bytes of whole characters.
// White space becomes single spaces between words. Invalid UTF-8 is replaced.
func concise(text string, n int) string {
	out := make([]byte, 0, min(n, len(text)))
	space := false

	for _, char := range text {
		if unicode.IsSpace(char) {
			space = len(out) > 0
			continue
		}

		need := utf8.RuneLen(char)
		if space {
			need++
		}
		if len(out)+need > n {
			break
		}
		if space {
			out, space = append(out, ' '), false
		}
		out = utf8.AppendRune(out, char)
	}
	return string(out)
}
