// Package h2 is a client of HTTP/2 (RFC 9113) for many slow answers on few
// connections, such as those of Envoy's loopback listener.
//
// The one goroutine that reads a connection adds what has come to the answer's
// [Stream] and notifies the receiver, who takes it with [Stream.Next]. So no
// goroutine is in between. While a connection is busy, it is read at ticks: one
// wake-up then serves many streams (conn.go). What a receiver does not take is bounded
// by the window of its stream, and holds back no other one.
//
// A [Pool] has the connections. session.go and receive.go are the protocol without
// sockets: bytes in, bytes out. conn.go has a goroutine that reads and one that writes;
// quiet_linux.go is a socket that wakes the process only where it is waited for.
//
// Two locks guard what streams and sessions share: that of a session is taken before that
// of one of its streams, and receivers are notified without either where it is possible.
//
// The package knows nothing of engines. What it lacks of HTTP/2 is what a client of Envoy
// does not need: pushed answers, priorities, bodies of requests that grow.
package h2
