package turn

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Logprob is a token of an answer's text and how likely it was.
type Logprob struct {
	Token harmony.Token
	engine.Logprob
}

// likelihoods are the tokens of an answer whose text has not been shown yet.
// Text is held back where it may begin a stop string, and a character until it
// is complete; a token is told with the first text of it that is shown.
type likelihoods struct {
	next  *engine.Logprob // of the token being read, nil where none was asked for
	held  []Logprob
	begin []int // where in the answer's text each of them begins
	read  int   // bytes of the answer's text so far
	shown int   // of these
	told  []Logprob
}

// note takes the token being read, whose text has not been read yet.
func (l *likelihoods) note(token harmony.Token) {
	p := *l.next
	p.Top = slices.Clone(p.Top) // the engine's chunk may go before the text is shown
	l.held, l.begin = append(l.held, Logprob{token, p}), append(l.begin, l.read)
}

// show takes n more bytes of text that are shown and gives the tokens that begin
// there. The result is valid until the next call.
func (l *likelihoods) show(n int) []Logprob {
	l.shown += n
	i := 0
	for i < len(l.begin) && l.begin[i] < l.shown {
		i++
	}
	l.told = append(l.told[:0], l.held[:i]...)
	l.held, l.begin = slices.Delete(l.held, 0, i), slices.Delete(l.begin, 0, i)
	return l.told
}

// end forgets what is not shown.
func (l *likelihoods) end() {
	l.held, l.begin, l.read, l.shown = l.held[:0], l.begin[:0], 0, 0
}
