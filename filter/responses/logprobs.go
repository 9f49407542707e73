package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Log probabilities are asked for by a value of include. Answers have them: in the
// events of their text, and in the part of their item. All items of a reply together
// may have [turn.MaxLogprobs]. An object with more is an error. Of a stream the client
// has got them with the text already: there the item with which they become too many,
// and those after it, have none.

// includeLogprobs is the value of include.
const includeLogprobs = "message.output_text.logprobs"

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
	if !r.output.logprobs.tooLarge || r.request.options.follow {
		return nil
	}
	return turn.LogprobsTooLarge("include", "max_output_tokens")
}

func (f *fieldReader) readTopLogprobs(v jsontext.Field) *apierror.Error {
	return v.SetInteger(&f.input.Engine.TopLogprobs, 0, engine.MaxTopLogprobs)
}

// finishLogprobs completes what the engine is asked for. Without the value of include,
// top_logprobs has no effect.
func (f *fieldReader) finishLogprobs() {
	if e := &f.input.Engine; e.TopLogprobs > 0 && !e.Logprobs {
		e.TopLogprobs = 0
		f.ignored.Add("top_logprobs")
	}
}
