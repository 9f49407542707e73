package turn

import (
	"unicode"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Outline is what can be told of a request to those who choose where it goes
// and to access logs, beside what its token request says.
type Outline struct {
	Items    int    // messages, calls and results of the conversation
	Tools    int    // that the request declares
	Question string // the beginning of the last user's text, as [Limits].QuestionBytes allows; white space is one space
}

// Outline is the turn's.
func (t *Turn) Outline() Outline { return t.outline }

func (s *Scope) outline(tools []harmony.Namespace, before *Prefix, items []Item) Outline {
	o := Outline{Items: before.settled + len(items), Question: s.question(before.question, items)}
	for i := range tools {
		o.Tools += len(tools[i].Tools)
	}
	return o
}

// question is the beginning of the last user's text among items, or what was
// the one before them.
func (s *Scope) question(before string, items []Item) string {
	if s.Limits.QuestionBytes <= 0 {
		return ""
	}
	for i := len(items) - 1; i >= 0; i-- {
		if items[i].Kind == User && !items[i].Summary {
			return concise(items[i].Text, s.Limits.QuestionBytes)
		}
	}
	return before
}

// concise is the beginning of text in at most n bytes of whole characters. All
// white space is single spaces within the text. Broken UTF-8 is replaced.
func concise(text string, n int) string {
	out := make([]byte, 0, min(n, len(text)))
	space := false
	for _, r := range text {
		if unicode.IsSpace(r) {
			space = len(out) > 0
			continue
		}
		need := utf8.RuneLen(r)
		if space {
			need++
		}
		if len(out)+need > n {
			break
		}
		if space {
			out, space = append(out, ' '), false
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}
