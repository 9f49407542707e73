package run

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// choicePhase is what is to become of a choice. Who leaves a phase:
//
//	phase        how it is left                                                           for
//	open         take: the engine ends the choice                                         done
//	             take: the watcher interrupts the model                                   interrupted
//	             endChoice: the filter ends the choice in place of an engine              done
//	interrupted  endInterruption: the reasoning is ended, and the model goes on           open
//	             endInterruption: the arguments of a call are not those of its tool       asked again
//	             endInterruption: no call can go on with it                               done
//	             endChoice: a token quota is used up                                      done
//	asked again  take: the arguments have come, or other output                           open
//	             otherwise as open
//	done         by nobody
//
// A call that is repeated as a whole (continuation.restart) begins with new choices, which
// are open.
type choicePhase uint8

const (
	// choiceOpen: the call being made has output for the choice, or a later one will.
	choiceOpen choicePhase = iota
	// choiceInterrupted: the model is to stop after the tokens so far. What the engine still
	// sends of the choice is dropped.
	choiceInterrupted
	// choiceAskedAgain: the next output is the arguments of a call, which were asked for again.
	choiceAskedAgain
	// choiceDone: the choice has its end.
	choiceDone
)

// choice is the output of one choice so far, and how another call can continue it.
type choice struct {
	phase  choicePhase
	reason turn.Interruption // why the model was interrupted; NotInterrupted in other phases

	tokens []harmony.Token
	// watcher says where the model has to be interrupted, and holds arguments of calls back
	// until they are checked; nil: the model is not interrupted.
	watcher *turn.Watcher

	// What is missing of the choice is the rest of asked, whose prompt has the first told
	// tokens already: the request of the step's first call, or the one by which arguments
	// were asked for again.
	asked *engine.Request
	told  int
}

// done reports whether the choice has its end.
func (c *choice) done() bool { return c.phase == choiceDone }

// take keeps the output of a chunk. It reports whether the chunk has something for the
// reply.
func (c *choice) take(chunk *engine.Chunk) bool {
	switch {
	case c.watcher == nil:
	case c.phase == choiceInterrupted:
		// The engine has not noticed yet that its call ends, or makes other choices in it.
		chunk.Tokens, chunk.Logprobs, chunk.Finish = nil, nil, engine.FinishNone
	default:
		c.watch(chunk)
	}

	c.tokens = append(c.tokens, chunk.Tokens...)
	switch {
	case c.phase == choiceInterrupted:
	case ends(chunk.Finish):
		c.phase = choiceDone
	case c.phase == choiceAskedAgain && len(chunk.Tokens) > 0:
		c.phase = choiceOpen
	}

	return len(chunk.Tokens) > 0 || chunk.Finish != engine.FinishNone || chunk.Usage != nil || chunk.Fingerprint != ""
}

// ends reports whether a choice has its end. An engine that breaks a choice off has not ended
// it: another one may.
func ends(finish engine.Finish) bool {
	return finish != engine.FinishNone && finish != engine.FinishAbort
}

// watch gives the chunk the tokens that the watcher lets through.
func (c *choice) watch(chunk *engine.Chunk) {
	own := len(chunk.Tokens)
	tokens, reason := c.watcher.Push(chunk.Tokens)
	chunk.Tokens = tokens
	switch {
	case reason != turn.NotInterrupted:
		c.phase, c.reason = choiceInterrupted, reason
		chunk.Finish = engine.FinishNone // the choice goes on
	case ends(chunk.Finish):
		// Arguments that end with the choice were held back until now.
		if held := c.watcher.Release(); len(held) > 0 {
			chunk.Tokens = slices.Concat(chunk.Tokens, held)
		}
	}

	// Log probabilities belong to the tokens of the chunk itself: answers have some, the
	// arguments of calls, which earlier chunks have brought, have none.
	chunk.Logprobs = chunk.Logprobs[:min(len(chunk.Tokens), len(chunk.Logprobs))]
	if len(chunk.Tokens) > own {
		chunk.Logprobs = nil
	}
}

// leave leaves an interruption for another phase.
func (c *choice) leave(phase choicePhase) { c.phase, c.reason = phase, turn.NotInterrupted }

// rest returns the request for what is missing of the choice after more tokens; nil if there
// is none: the limit is reached, or the rest of a grammar cannot be stated.
func (c *choice) rest(of *turn.Turn, more ...harmony.Token) *engine.Request {
	return c.asked.Continued(of.Stating(), slices.Concat(c.tokens[c.told:], more))
}

// stopped reports whether only the engine's word is missing that the choice has ended: its
// last token is one at which the engine stops.
func (c *choice) stopped() bool {
	return len(c.tokens) > 0 && c.asked.Stops(c.tokens[len(c.tokens)-1])
}

// askAgain has the next call generate anew the arguments that follow the output, which ends
// with the header of a call: of the form that the tool takes. Without room for any the choice
// ends.
func (c *choice) askAgain(of *turn.Turn, first *engine.Request) {
	// The grammar of the request is one of the whole output. After the header of a call only
	// that of the tool's arguments holds.
	free := *first
	free.Constraint, free.Advised = nil, false
	again := free.Continued(of.Stating(), c.tokens)

	c.leave(choiceAskedAgain)
	form := c.watcher.Again(c.tokens)
	if again != nil {
		again.Constraint = form
		c.asked, c.told = again, len(c.tokens)
	}
}
