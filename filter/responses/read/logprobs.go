package read

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Log probabilities are asked for by a value of include. Answers have them: in the
// events of their text, and in the part of their item. All items of a reply together
// may have [turn.MaxLogprobs]. An object with more is an error. Of a stream the client
// has got them with the text already: there the item with which they become too many,
// and those after it, have none.

// includeLogprobs is the value of include.
const includeLogprobs = "message.output_text.logprobs"

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
