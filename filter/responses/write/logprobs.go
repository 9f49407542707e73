package write

import "github.com/envoy-harmony/envoy-harmony/filter/turn"

// Log probabilities are asked for by a value of include. Answers have them: in the
// events of their text, and in the part of their item. All items of a reply together
// may have [turn.MaxLogprobs]. An object with more is an error. Of a stream the client
// has got them with the text already: there the item with which they become too many,
// and those after it, have none.

// collectedLogprobs counts the log probabilities of a reply's items.
type collectedLogprobs struct {
	bytes    int  // of the items before the one that is being written
	tooLarge bool // there were more than the items may have
}

// end takes the log probabilities of an item as far as they have come, once the
// events that have them are written.
func (l *collectedLogprobs) end(it *outputItem) {
	if l.tooLarge || l.bytes+len(it.Logprobs) > turn.MaxLogprobs {
		l.tooLarge, it.Logprobs = true, nil
	}
}
