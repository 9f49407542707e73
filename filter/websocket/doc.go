// Package websocket serves the Responses API over WebSocket: the second transport of one API.
//
// A client opens a connection by an upgrade of GET /v1/responses, which a route of Envoy sends
// here, and sends events: response.create, response.steer, response.cancel. Each response is an
// exchange of package extproc. Its driver (response.go) makes the messages that Envoy would have
// sent of a POST with the same body and the headers of the upgrade, and events of what the
// exchange answers. So a tenant, keys, quotas, the memory budget, records, spans, metrics and the
// log are those of HTTP, and this package knows none of them. It knows no models, no engines and
// no JSON of requests beside the members that are the transport's own.
//
//	client ─▶ reader (reader.go) ─▶ event (event.go) ─▶ lane (lane.go) ─▶ response ─▶ extproc
//	client ◀──────────────── one event a message (sse.go) ◀─────────────────── response ◀─┘
//
// [Server] is an HTTP handler, made of [Options]: what drives an exchange, whose memory it takes,
// and the current [Limits]. Nobody but Envoy may reach it. Its types inside are the connection,
// the lane and the response; each has a map of how it stands above it.
//
//	sockets := websocket.New(websocket.Options{Drive: …, Hold: …, Limits: …, Tenant: …, Now: …})
//	server := http.Server{Handler: sockets, ReadHeaderTimeout: 10 * time.Second}
//
// # What is the connection's
//
// A lane is an order: the responses of a stream_id are made one after another, those of
// different lanes side by side. Each has one last event, before any of the next one, and an error of
// an event that makes no response waits for its turn. Responses that are not stored are kept for the connection
// ([store.Local]), so that previous_response_id finds them. Input that steers a response waits
// for its end, and becomes the input of the next one (steer.go).
//
// # What is bounded
//
// Connections, of a tenant too; the responses of one that wait or are made, the lanes, the bytes of
// a message and the time in which it has to come, events and frames in a second (frames.go), the time
// without a response, and the age. What waits is taken of the memory budget while it arrives, and a
// message that is not whole makes room for others: it is refused. What is kept makes room first.
// Nothing waits for a client that reads slowly: a response sends an event, and goes on when it is
// written. A write that takes longer than Limits.WriteTime ends the connection.
//
// # How a connection ends
//
//	why                                                   close code   open responses
//	the client closes, or is gone (a ping has no answer)  its own      are canceled, as over HTTP
//	a message is too large, or is no text                 1009, 1003   are canceled
//	a message is too long on its way                      none         are canceled
//	too many errors wait for their lanes                  1008         are canceled
//	no response for Limits.IdleTimeout                    1000         there are none
//	older than Limits.MaxAge                              1000         end first, new ones are refused
//	the process drains                                    1001         end first, new ones are refused
//	the time of the drain is over                         1001         end with an error, within abortTime
//	a write does not end                                  none         are canceled
package websocket
