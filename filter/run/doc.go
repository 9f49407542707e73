// Package run makes the reply to one request: model calls, and jobs of tools and
// stores between and after them.
//
// A [Run] is a state machine. It takes engine events, results of jobs and expired
// timers, and calls its [Downstream] with what the client gets and its [Executor]
// with what has to be done. It knows neither how a model call reaches the engine
// nor who the client is: an ext_proc exchange, or the journal of a background
// response. It does not know the APIs either: an api.Reply says which step comes
// next, and what is written of an engine's output.
//
// A [Runner] is the edge around one run: it executes jobs, holds the model call
// being made, the timers and the record, and [Serve] is the loop that feeds them
// all. Replay has neither, and drives a Run by the events of a record.
//
//	exchange │ background ──▶ Serve ──▶ Runner ──▶ Run ──▶ api.Reply
//	                            ▲          │
//	          events, results ──┘          └──▶ model calls, jobs
//
// What an engine has made passes through these, in this order, before the reply gets
// it. The methods have the names of what they add: modelCall.limited, Run.watched, Run.verified,
// Run.toReply.
//
//	limit         the engine's output is cut at the limit that it was told (limit.go)
//	spend         it counts for token quotas, also if nobody gets it (spend.go)
//	continuation  what was output is kept, so that another call can go on with it; watchers
//	              of choices interrupt the model (continue.go, choice.go)
//	output room   memory for it is taken, if the reply keeps its output (outputroom.go)
//	verifier      the answer of an engine without grammars is held back (verify.go)
//
// The parts return: a model call an outcome (outcome.go), spending a grant (spend.go), the
// continuation how a step goes on (continue.go). The run alone decides what follows
// (step.go), and only it calls its Downstream, its Executor and its reply.
//
// What becomes of a call whose engine fails, at any point of its output, is a table in
// continue.go. The states of a run are in run.go, those of a model call in call.go, of a
// verifier in verify.go, and those of a choice in choice.go, each with who leaves them.
package run
