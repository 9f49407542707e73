package loopback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// secured makes TLS connections to the listener. The files are read for each of
// them, so that renewed ones are used without a restart.
type secured struct {
	files  config.LoopbackTLS
	dialer *net.Dialer
	last   atomic.Pointer[tls.Config] // of the files when they could last be used
}

// newSecured returns an error if the files cannot be used.
func newSecured(files config.LoopbackTLS, dialer *net.Dialer) (*secured, error) {
	made, err := files.Read()
	if err != nil {
		return nil, err
	}
	s := &secured{files: files, dialer: dialer}
	s.last.Store(made)
	return s, nil
}

// dial connects to host:port and checks the certificate for the host. While the files
// cannot be used, as while they are being written, the earlier ones count. Why is
// part of the error if these fail too.
func (s *secured) dial(ctx context.Context, network, address string) (net.Conn, error) {
	made, unusable := s.files.Read()
	if unusable != nil {
		made = s.last.Load()
	} else {
		s.last.Store(made)
	}

	conn, err := (&tls.Dialer{NetDialer: s.dialer, Config: made}).DialContext(ctx, network, address)
	if err != nil {
		return nil, errors.Join(err, unusable)
	}
	return conn, nil
}

// explain adds to the error of a request by TLS what to change.
func (c *Client) explain(err error) error {
	if !c.secured {
		return err
	}
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		noTLS     tls.RecordHeaderError
		network   *net.OpError
	)

	advice := ""
	switch {
	case errors.As(err, &authority):
		advice = "loopback_tls.ca_file must have the CA of the loopback listener's certificate"
	case errors.As(err, &name):
		advice = "the host of loopback must be a name in the loopback listener's certificate"
	case errors.As(err, &invalid):
		advice = "renew the loopback listener's certificate"
	case errors.As(err, &noTLS):
		advice = "the loopback listener has no TLS: give it a certificate, or write loopback without https://"
	// TLS 1.3: the listener checks a client's certificate when the client has begun to
	// write. Its alert may come too late.
	case errors.As(err, &network) && network.Op == "remote error", errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		advice = "if the loopback listener requires a certificate, loopback_tls.cert_file must have one of its CA"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}
