package extproc

import (
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/envoy-harmony/envoy-harmony/filter/h2"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// Credentials returns the credentials of a gRPC server at whose address Envoy reaches
// the server of replies too. Once inner has made its handshake, connections whose HTTP/2
// settings have [header.ReplySetting] go to replies, and the others to gRPC.
func Credentials(inner credentials.TransportCredentials, replies *h2.Server) credentials.TransportCredentials {
	return splitting{inner, replies}
}

type splitting struct {
	credentials.TransportCredentials
	replies *h2.Server
}

// ServerHandshake implements [credentials.TransportCredentials].
func (s splitting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	first, reply, err := h2.Peek(c, header.ReplySetting)
	if err != nil {
		return nil, nil, err
	}
	if reply {
		if err := s.replies.Serve(c, first); err != nil {
			return nil, nil, err
		}
		return nil, nil, credentials.ErrConnDispatched
	}
	return &begun{c, first}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (s splitting) Clone() credentials.TransportCredentials {
	return splitting{s.TransportCredentials.Clone(), s.replies}
}

// begun is a connection of which first has been read.
type begun struct {
	net.Conn
	first []byte
}

// Read implements [io.Reader].
func (c *begun) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}
