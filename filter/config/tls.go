package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
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

func (c *Config) checkTLS() (errs faults) {
	t := c.TLS
	if !t.Enabled() {
		return nil
	}
	if t.CertFile == "" {
		errs.add(
			"tls.cert_file: is missing: set it to the file of the certificate, such as " +
				"/etc/envoy-harmony/tls/tls.crt, or remove the other keys of tls")
	}
	if t.KeyFile == "" {
		errs.add(
			"tls.key_file: is missing: set it to the file of the certificate's private key, such as " +
				"/etc/envoy-harmony/tls/tls.key")
	}
	if strings.HasPrefix(c.Listen, "unix://") {
		errs.add(
			"tls: listen is a Unix socket, which only this machine can reach: remove the keys of tls, or set " +
				"listen to host:port")
	}
	return errs
}

// schemeTLS is the beginning of a Loopback that is reached by TLS.
const schemeTLS = "https://"

// LoopbackTLS names the PEM files of connections to a Loopback with https. They are
// read again for each connection.
type LoopbackTLS struct {
	// CAFile has the CA certificates by which the listener's certificate is checked.
	// The certificate must be for the host of Loopback. Empty: the CAs of the system.
	CAFile string `json:"ca_file" reload:"restart"`
	// CertFile has the certificate that the filter presents to the listener, followed
	// by its intermediate certificates. Empty: it presents none.
	CertFile string `json:"cert_file" reload:"restart"`
	// KeyFile has the private key of the certificate.
	KeyFile string `json:"key_file" reload:"restart"`
}

// LoopbackAddress returns Loopback without its scheme, host:port or unix:///path, and
// whether it is reached by TLS.
func (c *Config) LoopbackAddress() (address string, secured bool) {
	return strings.CutPrefix(c.Loopback, schemeTLS)
}

func (c *Config) checkLoopbackTLS() (errs faults) {
	t := c.LoopbackTLS
	if _, secured := c.LoopbackAddress(); !secured && t != (LoopbackTLS{}) {
		errs.add(
			"loopback_tls: loopback is without TLS: write loopback as https://host:port, or remove the keys of " +
				"loopback_tls")
	}
	if t.CertFile == "" && t.KeyFile != "" {
		errs.add(
			"loopback_tls.cert_file: is missing: set it to the file of the certificate that the filter presents, " +
				"or remove loopback_tls.key_file")
	}
	if t.CertFile != "" && t.KeyFile == "" {
		errs.add(
			"loopback_tls.key_file: is missing: set it to the file of the certificate's private key, or remove " +
				"loopback_tls.cert_file")
	}
	return errs
}

// Read reads the files and makes the TLS configuration of a connection. The error
// names each key at fault and what to change.
func (t LoopbackTLS) Read() (*tls.Config, error) {
	// The filter's client speaks nothing else. A listener whose codec_type is AUTO learns it by ALPN.
	made := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	var errs faults
	// All that is wrong is reported at once, so a file that cannot be read does not end the check.
	read := func(key, path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			errs.add(
				"loopback_tls.%s: %w: put the file there, let user %d read it, or correct the path",
				key, err, os.Getuid())
		}
		return text
	}

	if t.CAFile != "" {
		made.RootCAs = x509.NewCertPool()
		if text := read("ca_file", t.CAFile); text != nil && !made.RootCAs.AppendCertsFromPEM(text) {
			errs.add(
				"loopback_tls.ca_file: %s has no certificate: it must have the CA of the listener's certificate "+
					"as a PEM block CERTIFICATE", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, key := read("cert_file", t.CertFile), read("key_file", t.KeyFile)
		if cert != nil && key != nil {
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				errs.add(
					"loopback_tls.cert_file: %s and %s are no certificate with its key, in PEM and without a "+
						"passphrase: set both keys to files that were made together (%w)", t.CertFile, t.KeyFile, err)
			}
			made.Certificates = []tls.Certificate{pair}
		}
	}
	return made, errors.Join(errs...)
}
