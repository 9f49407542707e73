// Package extproc is the ext_proc service that Envoy streams requests and replies
// through. It needs Envoy's ext_proc filter with both bodies FULL_DUPLEX_STREAMED
// and headers and trailers SEND; another mode is rejected by name.
//
// An exchange is one HTTP request with its reply. [Server.Process] runs each on one
// goroutine: an exchange is a state machine (exchange.go) that takes Envoy's messages
// and leaves its own in a list. A request for a Harmony model is handled by an
// endpoint of an API (dispatch.go), and a run makes its reply, which the exchange
// sends to Envoy. Every other request passes through byte for byte.
package extproc
