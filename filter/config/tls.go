package config

import (
	"errors"
	"strings"
)

// TLS names the PEM files of Listen. Without CertFile it is plaintext. The files
// are read again when they change.
type TLS struct {
	// CertFile has the certificate that the filter presents to Envoy, followed by
	// its intermediate certificates.
	CertFile string `json:"cert_file" reload:"restart"`
	// KeyFile has the private key of the certificate.
	KeyFile string `json:"key_file" reload:"restart"`
	// ClientCAFile has the CA certificates by which Envoy's certificate is
	// checked. Empty: Envoy needs no certificate.
	ClientCAFile string `json:"client_ca_file" reload:"restart"`
}

// Enabled reports whether Listen uses TLS.
func (t TLS) Enabled() bool { return t != TLS{} }

func (c *Config) checkTLS() (errs []error) {
	t := c.TLS
	if !t.Enabled() {
		return nil
	}
	if t.CertFile == "" {
		errs = append(errs, errors.New("tls.cert_file: is missing: set it to the file of the certificate, such as /etc/envoy-harmony/tls/tls.crt, or remove the other keys of tls"))
	}
	if t.KeyFile == "" {
		errs = append(errs, errors.New("tls.key_file: is missing: set it to the file of the certificate's private key, such as /etc/envoy-harmony/tls/tls.key"))
	}
	if strings.HasPrefix(c.Listen, "unix://") {
		errs = append(errs, errors.New("tls: listen is a Unix socket, which only this machine can reach: remove the keys of tls, or set listen to host:port"))
	}
	return errs
}
