// Package filter is the ext_proc service that Envoy streams requests and
// replies through.
//
// One exchange is one HTTP request with its reply. A [Server] runs it on one
// goroutine: stream.go moves messages between gRPC and the exchange, and
// exchange.go (the way in) and reply.go (the way out) are a state machine that
// knows neither gRPC nor a clock:
//
//	Envoy message | tick  ->  exchange  ->  replies to Envoy, next tick
//
// A request whose path is an API of ours and whose model is Harmony's becomes
// a token request for the model's engine; the engine's tokens become the API's
// reply. Everything else is relayed byte for byte.
//
// The filter needs Envoy's ext_proc filter with both bodies
// FULL_DUPLEX_STREAMED and headers and trailers SEND; another mode is refused
// by name.
package filter
