// Package h2 is HTTP/2 (RFC 9113) for many slow streams on few connections: a client,
// for model calls through Envoy's loopback listener, and a server, for the replies that
// Envoy takes from the filter.
//
// The client's [Pool] has the connections. The one goroutine that reads a connection
// adds what has come to the answer's [Stream] and rings its bell; the receiver takes it
// with [Stream.Next]. So no goroutine is in between. While a connection is busy, it is
// read at ticks: one wake-up then serves many streams (conn.go). What a receiver does
// not take is bounded by the window of its stream, and holds back no other one.
//
// The [Server] has no handlers. A [Reply] is written where it was prepared, before or after
// its request comes, and what many of them write leaves the process in one write. A reply whose peer does not read is [Reply.Behind].
//
// session.go and receive.go are the client's protocol without sockets, serving.go is the
// server's: bytes in, bytes out.
package h2
