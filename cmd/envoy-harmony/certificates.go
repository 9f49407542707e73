package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// certificates is the TLS configuration of the ext_proc listener. It follows its
// files, which are replaced when a certificate is renewed.
type certificates struct {
	files   config.TLS
	log     logrus.FieldLogger
	current atomic.Pointer[tls.Config]

	first [sha256.Size]byte // hash of the files at the start

	reloads    *prometheus.CounterVec
	handshakes prometheus.Counter
	notAfter   prometheus.Gauge
}

// newCertificates reads the files. Its error names the key, the file and what to
// change.
func newCertificates(files config.TLS, log logrus.FieldLogger, metrics prometheus.Registerer) (*certificates, error) {
	c := &certificates{
		files: files, log: log,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "harmony_tls_reloads_total",
			Help: "Changes of the TLS files, by what became of them.",
		}, []string{"outcome"}),
		handshakes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "harmony_tls_handshake_errors_total",
			Help: "Connections to the ext_proc port whose TLS handshake failed.",
		}),
		notAfter: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "harmony_tls_certificate_not_after_seconds",
			Help: "When the certificate of the ext_proc port expires, in seconds since 1970.",
		}),
	}

	for _, m := range []prometheus.Collector{c.reloads, c.handshakes, c.notAfter} {
		if err := metrics.Register(m); err != nil {
			return nil, err
		}
	}

	// Both are there from the start, so that a rate can be computed of them.
	for _, outcome := range []string{reloadOK, reloadFailed} {
		c.reloads.WithLabelValues(outcome)
	}

	texts := readTLS(files)
	c.first = texts.hash()
	if err := c.use(texts); err != nil {
		return nil, err
	}
	return c, nil
}

// Outcomes of a reload.
const (
	reloadOK     = "ok"
	reloadFailed = "failed"
)

// tlsFilesInterval is how often the files are read.
const tlsFilesInterval = 2 * time.Second

// follow uses the files when they have changed, until ctx ends.
func (c *certificates) follow(ctx context.Context) { c.follower(time.After).follow(ctx, c.first, nil) }

// follower waits until the files stay as they are: a certificate and its key may be written one after the other.
func (c *certificates) follower(after func(time.Duration) <-chan time.Time) *follower[tlsTexts] {
	return &follower[tlsTexts]{
		read:  func() tlsTexts { return readTLS(c.files) },
		every: func() time.Duration { return tlsFilesInterval },
		after: after,
		take:  c.reload,
	}
}

// reload uses what the files have become. If it cannot be used, the earlier ones stay.
func (c *certificates) reload(texts tlsTexts) {
	if err := c.use(texts); err != nil {
		c.reloads.WithLabelValues(reloadFailed).Inc()
		c.log.WithError(err).Error(
			"The TLS files have changed and cannot be used: the earlier certificate stays in use")
		return
	}
	c.reloads.WithLabelValues(reloadOK).Inc()
	c.log.WithField("not_after", c.leaf().NotAfter.UTC().Format(time.RFC3339)).Info("The TLS files have changed and " +
		"are used for new connections")
}

// use makes the TLS configuration of new connections.
func (c *certificates) use(texts tlsTexts) error {
	made, err := texts.config(c.files)
	if err != nil {
		return err
	}
	c.current.Store(made)
	leaf := c.leaf()
	c.notAfter.Set(float64(leaf.NotAfter.Unix()))

	// A warning, and no error: it may be this machine's clock that is wrong, and without the listener
	// every request fails.
	if now := time.Now(); now.After(leaf.NotAfter) {
		c.log.Warnf(
			"The certificate in %s has expired on %s: Envoy will reject it. Renew it",
			c.files.CertFile, leaf.NotAfter.UTC().Format(time.RFC3339))
	} else if now.Before(leaf.NotBefore) {
		c.log.Warnf(
			"The certificate in %s is valid from %s on: Envoy will reject it. Check the clock of this machine",
			c.files.CertFile, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *certificates) leaf() *x509.Certificate { return c.current.Load().Certificates[0].Leaf }

// tlsTexts are the contents of the files of config.TLS.
type tlsTexts struct {
	cert, key, clientCA []byte
	err                 error // files that could not be read
}

// readTLS reads the files.
func readTLS(files config.TLS) (t tlsTexts) {
	// All files are read even if one is missing: the operator sees all that is wrong at once.
	var errs []error
	for _, f := range []struct {
		key, path, holds string
		to               *[]byte
	}{
		{"tls.cert_file", files.CertFile, "the certificate", &t.cert},
		{"tls.key_file", files.KeyFile, "the private key", &t.key},
		{"tls.client_ca_file", files.ClientCAFile, "the CA of Envoy's certificate", &t.clientCA},
	} {
		if f.path == "" {
			continue
		}

		var err error
		*f.to, err = os.ReadFile(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("%s: there is no file %s: put %s there, or correct the path", f.key, f.path, f.holds)
		case errors.Is(err, fs.ErrPermission):
			err = fmt.Errorf(
				"%s: %s may not be read by user %d: change its permissions, or fsGroup in Kubernetes",
				f.key, f.path, os.Getuid())
		case err != nil:
			err = fmt.Errorf("%s: %w", f.key, err)
		}

		errs = append(errs, err)
	}
	t.err = errors.Join(errs...)
	return t
}

// hash identifies the contents.
func (t tlsTexts) hash() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, text := range [][]byte{t.cert, t.key, t.clientCA} {
		// Hashed one by one: bytes that move from one file into another are a change.
		part := sha256.Sum256(text)
		h.Write(part[:])
	}
	h.Sum(sum[:0])
	return sum
}

// config makes the TLS configuration of a listener.
func (t tlsTexts) config(files config.TLS) (*tls.Config, error) {
	if t.err != nil {
		return nil, t.err
	}

	// X509KeyPair would find most of this too, but names neither the key of the configuration nor the file.
	var errs []error
	if !hasBlock(t.cert, "CERTIFICATE") {
		errs = append(errs, fmt.Errorf(
			"tls.cert_file: %s has no certificate: it must have PEM blocks CERTIFICATE", files.CertFile))
	} else if err := parseCertificates(t.cert); err != nil {
		errs = append(errs, fmt.Errorf(
			"tls.cert_file: %s has a certificate that cannot be read (%w): write the file again", files.CertFile, err))
	}

	switch {
	// OpenSSL's older form says in a header of the block that it is encrypted, not by its type.
	case hasBlock(t.key, "ENCRYPTED PRIVATE KEY") || bytes.Contains(t.key, []byte("Proc-Type: 4,ENCRYPTED")):
		errs = append(errs, fmt.Errorf(
			"tls.key_file: the key in %s is encrypted: write it without a passphrase", files.KeyFile))
	case !hasBlock(t.key, "PRIVATE KEY"):
		errs = append(errs, fmt.Errorf(
			"tls.key_file: %s has no private key: it must have a PEM block PRIVATE KEY", files.KeyFile))
	}

	made := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"}, CipherSuites: secureSuites(),
		// Tickets would let a client in that another CA has signed.
		SessionTicketsDisabled: true,
	}

	if files.ClientCAFile != "" {
		made.ClientAuth, made.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !made.ClientCAs.AppendCertsFromPEM(t.clientCA) {
			errs = append(errs, fmt.Errorf("tls.client_ca_file: %s has no certificate: it must have the CA of "+
				"Envoy's certificate as a PEM block CERTIFICATE", files.ClientCAFile))
		}
	}

	if errs != nil {
		return nil, errors.Join(errs...)
	}

	pair, err := tls.X509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("tls.key_file: %s is not the key of the certificate in %s: set both keys to files "+
			"that were made together (%w)", files.KeyFile, files.CertFile, err)
	}
	made.Certificates = []tls.Certificate{pair}
	return made, nil
}

// parseCertificates returns the error of the first certificate in PEM text that is
// malformed.
func parseCertificates(text []byte) error {
	// X509KeyPair reads the first certificate only. Envoy would be the one to find a damaged intermediate.
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
	}
}

// hasBlock reports whether PEM text has a block whose type ends with kind.
func hasBlock(text []byte, kind string) bool {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, kind) {
			return true
		}
	}
}
