package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// collectedLogprobs counts the log probabilities of a reply's items.
type collectedLogprobs struct {
	bytes    int  // of the items before the one that is being written
	tooLarge bool // there were more than the items may have
}

// end takes the log probabilities of an item as far as they have come, once the
// events that have them are written.
func (l *collectedLogprobs) end(it *outputItem) {
	if it != nil && (l.tooLarge || l.bytes+len(it.Logprobs) > turn.MaxLogprobs) {
		l.tooLarge, it.Logprobs = true, nil
	}
}

// closeDelta ends the delta that is being written, if there is one.
func (r *Reply) closeDelta() {
	r.events.closeDelta(r.output.item)
	r.output.logprobs.end(r.output.item)
}

// checkLogprobs returns an error if the client gets no events and the reply has more
// log probabilities than an object may have.
func (r *Reply) checkLogprobs() *apierror.Error {
	if !r.output.logprobs.tooLarge || r.request.Options.Follow {
		return nil
	}
	return turn.LogprobsTooLarge("include", "max_output_tokens")
}
