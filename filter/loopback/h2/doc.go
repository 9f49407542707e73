// Package h2 is a client of HTTP/2 (RFC 9113) for many slow answers on few
// connections, such as those of Envoy's loopback listener.
//
// The one goroutine that reads a connection adds what has come to the answer's
// [Stream] and rings its bell; the receiver takes it with [Stream.Next]. So no
// goroutine is in between. While a connection is busy, it is read at ticks: one
// wake-up then serves many streams (conn.go). What a receiver does not take is bounded
// by the window of its stream, and holds back no other one.
//
// A [Pool] has the connections. session.go and receive.go are the protocol without
// sockets: bytes in, bytes out.
package h2
