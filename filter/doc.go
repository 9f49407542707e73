// Package filter is the ext_proc service that Envoy streams requests and
// replies through.
//
// One exchange is one HTTP request with its reply. A [Server] runs it on one
// goroutine, the loop in stream.go, which feeds state machines that know neither
// gRPC nor sockets nor a clock:
//
//	Envoy's messages        ->  exchange  ->  messages to Envoy
//	news of a model call    ->    run     ->  model calls, jobs of tools
//	what came of a job      ->    run
//	a stored stream's news  ->  exchange
//	ticks                   ->  both      ->  the next tick
//
// A request whose path is an API of ours and whose model is Harmony's (dispatch.go)
// becomes a run (run.go): a reply, and the model calls and the work of tools that
// it is made of. The token request goes to the model's engine, and the engine's
// tokens become the API's reply. Model calls go through Envoy's loopback listener
// (loopback.go), in one leg or two (prefill.go); where there is none, Envoy sends
// the client's own request on instead. Tools do their jobs beside them (jobs.go). A
// run whose client does not wait is made without an exchange (background.go), its
// client is a journal in the store (journal.go), which others follow (feed.go).
// Everything that is not ours is relayed byte for byte.
//
// What becomes of each request is one line in the log and some metrics (record.go).
//
// The filter needs Envoy's ext_proc filter with both bodies
// FULL_DUPLEX_STREAMED and headers and trailers SEND; another mode is refused
// by name.
package filter
