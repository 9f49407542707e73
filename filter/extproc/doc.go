// Package extproc is the ext_proc service that Envoy streams requests and replies
// through. It needs Envoy's ext_proc filter with both bodies FULL_DUPLEX_STREAMED
// and headers and trailers SEND; another mode is rejected by name.
//
// An exchange is one HTTP request with its reply. It is a state machine (exchange.go)
// that takes Envoy's messages and leaves its own in a list; a driver feeds it (driver.go).
// [Server.Process] drives each by a stream of gRPC on one goroutine. A request for a
// Harmony model is handled by an endpoint of an API (dispatch.go), and a run makes its
// reply, which the exchange sends to Envoy. Every other request passes through byte for
// byte.
//
//	Envoy ─▶ driver ─▶ exchange ─▶ checks (checks.go) ─▶ body (request.go) ─▶ endpoint
//	           ▲          │                                                     │
//	Envoy ◀────┘      sender ◀── SendHeaders, SendBody, SendError ◀── run ◀─────┘
//
// The package knows Envoy: its messages, what it does with a local reply, a body in place
// of another one, trailers. It knows of the APIs no more than their endpoints, of engines
// no more than their dialects, and nothing of Harmony.
//
// What all exchanges share has files of its own: the memory budget (admission.go), the
// drain of the process (drain.go), which sessions are rolled out (rollout.go), and what
// Envoy learns of a reply for its logs and limits (metadata.go).
package extproc
