package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// credentials are those of the gRPC server of the ext_proc port.
func (c *certificates) credentials() credentials.TransportCredentials {
	return handshakes{
		credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), c,
		&complaints{last: map[string]time.Time{}},
	}
}

// handshakes are gRPC's credentials for TLS, but for one thing: gRPC refuses clients
// without ALPN, which Envoy's health checks are unless its configuration says otherwise.
// That of Envoy Gateway cannot. Without health checks all requests are a 503.
type handshakes struct {
	credentials.TransportCredentials // what is not about a server's handshake
	*certificates
	complaints *complaints
}

// ServerHandshake implements [credentials.TransportCredentials].
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, err := h.shake(raw)
	if err != nil {
		h.handshakes.Inc()
		log := h.log.WithError(err).WithField("peer", raw.RemoteAddr().String())
		if h.complaints.due(reasonOf(err), time.Now()) {
			log.Warn("A connection to the ext_proc port was refused: the TLS handshake failed. For the same reason " +
				"others are logged at level debug for a minute")
		} else {
			log.Debug("A connection to the ext_proc port was refused: the TLS handshake failed")
		}
		return nil, nil, err
	}

	// As the credentials of gRPC itself describe such a connection.
	info := credentials.TLSInfo{State: conn.ConnectionState()}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return conn, info, nil
}

// shake makes the handshake. It closes a connection that it refuses.
func (h handshakes) shake(raw net.Conn) (*tls.Conn, error) {
	var offered []string
	conn := tls.Server(raw, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			// Afterwards nothing tells a client that offered no protocol from one that offered none of ours.
			offered = hello.SupportedProtos
			return h.current.Load(), nil
		},
	})
	err := conn.Handshake()

	// Package crypto/tls lets clients of HTTP/1.1 in, as if they had no ALPN.
	if err == nil && len(offered) > 0 && !slices.Contains(offered, "h2") {
		err = fmt.Errorf(
			"the client speaks %s and not h2: in Envoy, the filter's cluster needs http2_protocol_options",
			strings.Join(offered, ", "))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Clone implements [credentials.TransportCredentials].
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.certificates, h.complaints}
}

// secureSuites are the cipher suites that HTTP/2 allows with TLS 1.2: gRPC's own.
func secureSuites() []uint16 {
	var ids []uint16
	for _, suite := range tls.CipherSuites() {
		// RFC 9113 forbids the others (appendix A), and a peer may end a connection for one.
		if strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "_CHACHA20_") {
			ids = append(ids, suite.ID)
		}
	}
	return ids
}

const (
	// complaintInterval is how long a reason is not logged again as a warning: each
	// health check of an Envoy that is refused is a connection.
	complaintInterval = time.Minute
	// maxComplaints bounds the reasons that are remembered: peers can word some.
	maxComplaints = 64
)

// complaints remembers which reasons have been logged.
type complaints struct {
	mu   sync.Mutex
	last map[string]time.Time // by reason
}

// due reports whether a reason is to be logged as a warning.
func (c *complaints) due(reason string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.last[reason]; ok && now.Sub(last) < complaintInterval {
		return false
	}

	// A few warnings too many are better than memory that peers can fill.
	if len(c.last) >= maxComplaints {
		clear(c.last)
	}
	c.last[reason] = now
	return true
}

// reasonOf is an error without the addresses and the time of a connection.
func reasonOf(err error) string {
	// The text of such an error has the client's port, which is another one each time.
	var network *net.OpError
	if errors.As(err, &network) {
		return network.Op + ": " + network.Err.Error()
	}
	reason, _, _ := strings.Cut(err.Error(), "current time ") // of a certificate that is not valid now
	return reason
}
