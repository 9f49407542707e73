// Package api is the contract between the filter and the APIs that it serves: what
// packages chat, responses and messages do for an exchange, in the words of none of them.
// Package models has endpoints too, and package render plays replies without a run.
//
// An [Endpoint] turns an HTTP request into an [Outcome]. If that is a [Request],
// its [Reply] is made in steps: model calls, and [Job]s of tools and stores. An
// API does no I/O in between: it returns the jobs that it needs as values, and
// the run that executes them hands back what came of each.
//
//	step := reply.Step          -> a model call, jobs, or nothing: the reply is complete
//	reply.Push, reply.JobDone   <- the engine's chunks, the jobs' results
//	reply.End                   -> the last bytes
//
// Package reply has the reply of all APIs; an API writes the events. The contract knows
// neither HTTP/2 nor Envoy: package extproc is one who keeps it, and package replay another.
// What only some requests can do is a field of [Info], such as a lock, that is nil for the others;
// what only some replies can do is a method of [Reply] that has nothing to say for the others.
package api

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Request is a decoded request that needs model calls.
type Request interface {
	// Info is what is known once the request is decoded.
	Info() Info

	// The methods that follow are not part of Info: the steps of a reply that come before its
	// first model call change what they return. While the reply is made, only its goroutine may
	// call them.

	// Engine is the first model call; nil where a step of the reply comes
	// before it.
	Engine() *engine.Request
	// Affinity is what the engine's replica is chosen by.
	Affinity() turn.Affinity
	// RoutingInfo is what endpoint pickers and access logs are told.
	RoutingInfo() turn.RoutingInfo
	// Ignored names the parameters that were accepted and have no effect.
	Ignored() []string
	// Bytes is about how many bytes of the client's, and of what is made of it, are kept
	// until the reply has ended: such as what the reply repeats, and what is stored.
	Bytes() int

	// NewReply begins the reply.
	NewReply(m Mode) Reply
}

// Info is what stays as it is of a [Request] while its reply is made. A goroutine other than the
// reply's may ask for it.
type Info struct {
	// ID is the id of the reply.
	ID string
	// Continues is that the reply goes on under the id of a stored one.
	Continues bool

	// Stream is that the reply is server-sent events.
	Stream bool
	// KeepAlive is what a stream sends in a silence: whole lines between two events,
	// without a meaning for the client. See [KeepAliveComment].
	KeepAlive string
	// KeepsOutput is that also a stream keeps the model's output until its end, as the reply
	// that is one object does.
	KeepsOutput bool

	// Lock is the lock of the conversation that the request has locked in the store; nil: none is.
	Lock Lock
	// Background is for a reply that is made after the client has its answer; nil: the client
	// waits for the reply.
	Background Background
}

// Mode says which steps a reply may have.
type Mode uint8

const (
	// SingleCall is the mode of a reply whose one model call Envoy makes: the
	// client's own request, sent on to the engine. Steps have jobs only.
	SingleCall Mode = iota
	// Loop is the mode of a reply whose model calls the filter makes.
	Loop
)

// Reply turns the engine's chunks into the bytes that the client gets, in one
// way for streams and whole objects. Its methods append to dst, do no I/O, and
// are called by one goroutine.
type Reply interface {
	// Step begins the next step, once the step before it is complete. An
	// error fails the reply.
	Step(dst []byte) ([]byte, Step, *apierror.Error)
	// Push takes a chunk of the model call being made.
	Push(dst []byte, c *engine.Chunk) ([]byte, *apierror.Error)
	// JobDone takes what came of the i-th job of the step: the job's result,
	// or an error that says why there is none.
	JobDone(dst []byte, i int, result any, err error) []byte
	// Done reports whether nothing that the engine may still send can change
	// the reply, so that the model call can be dropped.
	Done() bool
	// Fail makes the reply end with an error: further steps store what there
	// is of it, and End writes the error.
	Fail(dst []byte, err *apierror.Error) []byte
	// End writes the last bytes, after a step without a call or jobs. An error
	// takes the place of a whole object.
	End(dst []byte) ([]byte, *apierror.Error)
	// Interrupt has the reply end with what there is of it, and reports whether it does: no
	// model call follows the one being made, whose output the caller ends.
	Interrupt(why Interruption) bool
	// Cancel ends the reply because the client has left. It returns the jobs
	// that remain, whose results nobody takes.
	Cancel() []Job
	// Summary is what the reply has come to so far.
	Summary() turn.Summary
	// Fault is what went wrong without an error for the client, for the log;
	// nil if nothing did.
	Fault() error
	// Turn is the turn of the model call being made; nil where there is none.
	Turn() *turn.Turn
	// ToolCalls is, for the log, how many calls of tools were made, and how many accesses to
	// servers of tools, calls and lists, failed.
	ToolCalls() (made, failed int)

	// Ending reports whether how the reply has ended is being stored.
	Ending() bool
	// Background is the reply as the maker of a response in the background uses it; nil: the
	// request has no [Info.Background].
	Background() BackgroundReply
}

// Interruption is why a client ends the output of a reply that it goes on to read.
type Interruption string

// The interruptions.
const (
	// Steered: the client has more to say, and another response follows.
	Steered Interruption = "steered"
	// Canceled: the client wants no more of it.
	Canceled Interruption = "cancelled"
)

// KeepAliveComment is what a stream sends in a silence if its API has no event for
// that: a comment line of server-sent events, without an empty line after it. An empty
// line ends an event, and clients such as openai-go before 3.43 decode an event at each
// one, also where there is none. The line is part of the event that follows.
const KeepAliveComment = ": keep-alive\n"

// Step is what has to be done before a reply can go on: one model call, or jobs
// side by side. A step with neither means that the reply is complete.
type Step struct {
	Call *engine.Request
	Jobs []Job
}

// Job is work outside the state machine: a tool call, access to a store, or a
// long computation. A job is a value; it runs on a goroutine of its own, so that a tool or
// a store that hangs delays no stream: store.WithBreaker says what else that takes.
type Job interface {
	// Do does the work. ctx ends when the reply is not wanted any more; a job
	// that must be completed all the same bounds itself.
	Do(ctx context.Context) (result any, err error)
}

// Lock is the lock of a conversation in the store, which is renewed while the reply is made.
type Lock interface {
	// Renew extends the lock by its lease. An error that is store.ErrConflict means that
	// the lock is lost.
	Renew(ctx context.Context) error
	// Unlock releases the lock. It may be called more than once.
	Unlock(ctx context.Context) error
}

// Background is what a [Request] has whose reply is made after the client has its answer.
type Background interface {
	// Queue stores that owner makes the response, and returns the response's
	// key and the object that the client gets.
	Queue(ctx context.Context, owner string, lease time.Duration) (key store.Key, object []byte, err *apierror.Error)
	// Follows reports whether the client wants the stream now.
	Follows() bool
	// Follow is the stream from its first event.
	Follow() Follower
}

// BackgroundReply is the [Reply] to a request with a [Background].
type BackgroundReply interface {
	Reply
	// Start says that the stream's first events are stored already.
	Start()
	// Sequence is the number of the stream's next event.
	Sequence() int
	// Lost is why the response could not be stored as it has ended; nil if it
	// could. Its stream has no end of ours then.
	Lost() error
}

// Follower reads a stored stream of events as it grows. It is used by one
// goroutine.
type Follower interface {
	// Next waits a while for events after those that it has returned, and
	// may return none; end reports that there are no more. reserve takes the bytes
	// of what it returns from the memory budget before they are made; its error is
	// returned.
	Next(ctx context.Context, reserve func(bytes int) *apierror.Error) (sse []byte, end bool, err *apierror.Error)
	// Fail is the event with which the stream is broken off.
	Fail(err *apierror.Error) []byte
}
