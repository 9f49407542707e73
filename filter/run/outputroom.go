package run

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	// outputFactor is how many bytes a reply that keeps its output takes for each byte of
	// it: the text, which grows by copying, and the object or the events that are made of
	// it at the end.
	outputFactor = 4
	// outputStep is how much is taken at one time, so that no token takes a lock.
	outputStep = 256 << 10
	// messageBytes is about what a reply keeps of a message beside its text: an item with its
	// ids, which is written several times at the end. A message can be four tokens.
	messageBytes = 1 << 10
	// logprobBytes is about what the JSON of one log probability takes.
	logprobBytes = 64
)

// outputRoom takes room for the output of a model that a reply keeps until its end. A
// token can stand for 128 bytes, so that an engine's event of a few bytes can become much.
type outputRoom struct {
	take  func(bytes int) *apierror.Error // nil: there is room for all
	keeps bool                            // the output is kept
	left  int                             // bytes that are taken and not used
}

func newOutputRoom(info *api.Info, take func(bytes int) *apierror.Error) outputRoom {
	// Short replies take nothing.
	return outputRoom{take: take, keeps: !info.Stream || info.KeepsOutput, left: outputStep}
}

// grow takes room for a chunk, before the reply gets it.
func (o *outputRoom) grow(c *engine.Chunk) *apierror.Error {
	if o.take == nil || !o.keeps {
		return nil
	}
	for _, token := range c.Tokens {
		o.left -= outputFactor * harmony.TokenLength(token)
		if token == harmony.TokenMessage {
			o.left -= messageBytes
		}
	}
	for i := range c.Logprobs {
		o.left -= outputFactor * logprobBytes * (1 + len(c.Logprobs[i].Top))
	}
	if o.left >= 0 {
		return nil
	}

	step := max(outputStep, -o.left)
	if err := o.take(step); err != nil {
		return err
	}
	o.left += step
	return nil
}
