// Package reply is the machine that makes a reply, once for all APIs. An API is an
// [Encoder]: it writes its events, and decides nothing of what happens next.
//
// A [Machine] is an [api.Reply]. It knows in which phase the reply is, makes the model
// calls in turn, reads their tokens into parts, lets the filter's own tools run, tells
// the model of tools that do not exist, keeps the reasoning of calls for later
// requests, counts tokens, and ends the reply: complete, failed or cancelled. It knows
// neither JSON nor events, and does no I/O: what has to be done outside is a [Job].
//
// # What an encoder writes
//
// Every method appends to dst and returns it, as those of [api.Reply] do. Of a stream
// that is what the client gets now. Of a whole object nothing is sent before
// [Encoder.Object], so an encoder that was made for one gathers what it needs, and
// returns dst as it is.
//
//	Begin    the first events of a choice, once, before any other
//	Open     a part of the choice begins: reasoning, preamble, answer or call
//	Delta    its next text, once for each push within the part
//	Close    its last text, which may be empty, and its end
//	Error    the end of a stream that has failed
//	End      the end of a stream that is complete
//	Object   the whole reply, where it is one object
//
// The parts of a choice follow one another and do not overlap. The text of a push comes
// in one piece for each part, however many tokens it had: one call of an encoder is
// made for a push or a part, and none for a token. Part and text are valid until the
// method returns.
//
// # What an API may have beside
//
// The optional fields of [Options] are for what only some APIs have. [Tools] says who
// makes a call of the model; a call that the filter makes is a [Run]. A [Settler] writes
// what belongs to a push as a whole, such as its token ids, and how each of several choices
// ends. A [Stage] is a step of the API's own before a model call, such as the lists of
// tools of servers, from which the prompt is made. An [Ending] is what comes between the
// last model call and the last event, such as storing the response.
//
// example_test.go has a whole API: its encoder is what one more API, or one more
// transport of an API, has to write.
package reply

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Encoder writes the events of an API, or its whole object. It has no state but what
// its wire needs, such as numbers of events and the block that is open.
type Encoder interface {
	// Begin writes the first events of a choice. It is not called for a whole object.
	Begin(dst []byte, c *Choice) []byte
	// Open begins a part.
	Open(dst []byte, p *Part) []byte
	// Delta adds text to the part; never an empty one.
	Delta(dst []byte, p *Part, text []byte) []byte
	// Close adds the last text to the part, and ends it. cut says that the engine has
	// ended the choice within the part because of its length, or that reasoning was
	// interrupted.
	Close(dst []byte, p *Part, text []byte, cut bool) []byte

	// Error ends a stream that has failed.
	Error(dst []byte, err *apierror.Error) []byte
	// End ends a stream that is complete.
	End(dst []byte) []byte
	// Object writes the whole reply. An error takes its place.
	Object(dst []byte) ([]byte, *apierror.Error)
}

// Part is a part of a choice, while it is written.
type Part struct {
	Choice *Choice
	Kind   turn.Kind

	// Call is the call that the part is, under the model's name of the tool. Maker is who
	// makes it.
	Call  *turn.CalledTool
	Maker Maker

	// Logprobs are those of the text that an encoder gets with the part, as
	// [turn.AppendLogprobs] makes them.
	Logprobs []byte
	// Whole is all text of the part so far, of a call that the filter makes.
	Whole []byte
}

// Settler is an [Encoder] that writes something for each push, or an event for the end
// of each choice.
type Settler interface {
	// Settle ends what a push has begun to write for a choice. tokens are those of the
	// choice in the push; after the last push there is one more call without any. An
	// error fails the reply.
	Settle(dst []byte, c *Choice, tokens []harmony.Token) ([]byte, *apierror.Error)
	// Finish writes into a stream why a choice has ended. It comes with the choice's last
	// push, or before End where something has to be done first: a client may answer
	// the calls of a choice as soon as it knows that there are no more.
	Finish(dst []byte, c *Choice) []byte
}

// Maker is who makes a call of the model.
type Maker uint8

const (
	// ByClient is a call that the client makes. No model call follows.
	ByClient Maker = iota
	// ByFilter is a call that the filter makes, as a [Run], once the model has ended its turn.
	ByFilter
	// ByEncoder is a call that the encoder answers when the part is closed, without a job.
	ByEncoder
	// ByNobody is a call of a tool that does not exist. The model is told, and the encoder
	// does not see the part.
	ByNobody
)

// Tools is what an API says of the calls of the model.
type Tools interface {
	// Maker says who makes a call. last is that no turn can follow, in which the model
	// would have the result.
	Maker(call *turn.CalledTool, last bool) Maker
	// Corrected reports whether the model is told also of calls that it makes although it
	// is offered no tool at all, which are withheld else: see [turn.Reader.Corrected].
	Corrected(last bool) bool
}

// Ending is what an API does between the last model call and the last event. It is
// called once the output is complete, or the reply has failed.
type Ending interface {
	// Finish completes the output, and returns jobs that precede the end, such as the one
	// that stores the response. If it fails, Fail follows and Finish is called again.
	Finish(dst []byte) ([]byte, []Job, *apierror.Error)
	// Fail takes the error that the reply is to end with, and reports whether it does: the
	// end may be settled already.
	Fail(dst []byte, err *apierror.Error) (_ []byte, fails bool)
	// Cancel returns the jobs that are left to do once the client has gone.
	Cancel() []api.Job
}
