// Package run makes the reply to one request: model calls, and jobs of tools and
// stores between and behind them.
//
// A [Run] is a state machine. It takes engine events, results of jobs and expired
// timers, and calls its [Downstream] with what the client gets and its [Executor]
// with what has to be done. It knows neither how a model call reaches the engine
// nor who the client is: an ext_proc exchange, or the journal of a background
// response.
//
// A [Runner] is the edge around one run: it executes jobs, holds the model call
// being made, the timers and the record, and [Serve] is the loop that feeds them
// all.
//
//	exchange │ background ──▶ Serve ──▶ Runner ──▶ Run ──▶ api.Reply
//	                            ▲          │
//	          events, results ──┘          └──▶ model calls, jobs
package run
