package output

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// pendingLogprobs holds the tokens of an answer whose text has not been emitted
// yet. Text is held back while it may begin a stop string or a character is
// incomplete. A token belongs to the event that has the first byte of its text.
type pendingLogprobs struct {
	// Of the token being read; nil if none was asked for.
	next *engine.Logprob
	held []item.Logprob
	// Of the tokens in the answer's text.
	offsets []int
	// Bytes of the answer's text so far.
	read int
	// Of these, the emitted ones.
	shown   int
	emitted []item.Logprob
}

// add takes the token being read, before its text.
func (l *pendingLogprobs) add(token harmony.Token) {
	p := *l.next
	// The engine's chunk may be gone before the text is emitted.
	p.Top = slices.Clone(p.Top)
	l.held, l.offsets = append(l.held, item.Logprob{Token: token, Logprob: p}), append(l.offsets, l.read)
}

// show takes n more bytes of text that are emitted and returns the tokens that
// begin in them. The result is valid until the next call.
func (l *pendingLogprobs) show(n int) []item.Logprob {
	l.shown += n
	i := 0
	for i < len(l.offsets) && l.offsets[i] < l.shown {
		i++
	}

	l.emitted = append(l.emitted[:0], l.held[:i]...)
	l.held, l.offsets = slices.Delete(l.held, 0, i), slices.Delete(l.offsets, 0, i)
	return l.emitted
}

// clear drops the tokens whose text was not emitted, for the next part.
func (l *pendingLogprobs) clear() {
	l.held, l.offsets, l.read, l.shown = l.held[:0], l.offsets[:0], 0, 0
}
