package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// probePath is the path of probes, which every engine with the API has.
const probePath = "/v1/chat/completions"

const (
	probeInterval = 100 * time.Millisecond
	probeTimeout  = 10 * time.Second
	probeNews     = 10 * time.Second // interval of log lines while an engine does not answer
)

// probe asks whether clients can use run: OPTIONS of the chat path passes through Envoy
// and the filter to the engine.
type probe struct {
	address  string // of Envoy's listener for clients
	instance string // of Envoy, see [envoy.Options]

	// The service that answers, and what is logged while it does not.
	urls []string
	log  *logrus.Entry
}

// newProbe makes a probe of an Envoy with the options o at an address. Its answer comes from
// the service for other models and paths.
func newProbe(address string, o envoy.Options, cfg *config.Config, log *logrus.Logger) *probe {
	p := &probe{address: address, instance: o.Instance, log: logrus.NewEntry(log)}
	if o.Upstream != "" {
		p.urls, p.log = []string{o.Upstream}, log.WithField("upstream", o.Upstream)
		return p
	}

	for _, e := range envoyEngines(cfg) {
		// Probes go where the bootstrap sends other paths: a gRPC service has none of the API.
		if !e.GRPC {
			p.urls = e.URLs
			p.log = log.WithFields(logrus.Fields{"engine": e.Name, "urls": strings.Join(e.URLs, ",")})
			break
		}
	}
	return p
}

// wait probes until it works. Any answer of the engine is a success. If Envoy, the filter
// or the engine does not run, the status is 5xx. failed returns why Envoy has ended, once
// ended is closed.
func (p *probe) wait(ctx context.Context, ended <-chan struct{}, failed func() error) error {
	// Engines and Envoy take some moments to start: that is not worth a line.
	news := time.Now().Add(probeInterval * 5)
	for {
		status, instance, err := p.ask(ctx)

		// Where addresses overlap, such as 0.0.0.0 and 127.0.0.1, systems other than Linux let
		// another process listen at the more precise one, and it would get the clients.
		if err == nil && status < http.StatusInternalServerError && instance != p.instance {
			return fmt.Errorf("another process answers at %s: stop it, or choose another address with --listen",
				p.address)
		}
		if err == nil && status < http.StatusInternalServerError {
			return nil
		}

		if time.Now().After(news) {
			line := p.log.WithField("status", status)
			if err != nil {
				line = p.log.WithError(err)
			}
			line.WithField("reason", p.reason(ctx)).Warn("waiting for the engine to answer")
			news = time.Now().Add(probeNews)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return fmt.Errorf("envoy: %w", failed())
		case <-time.After(probeInterval):
		}
	}
}

// ask sends one probe, and returns the status and the instance of the reply.
func (p *probe) ask(ctx context.Context) (status int, instance string, err error) {
	status, header, err := exchange(ctx, http.MethodOptions, "http://"+p.address+probePath,
		http.Header{envoy.InstanceHeader: {p.instance}}, probeTimeout)
	return status, header.Get(envoy.InstanceHeader), err
}

const (
	// reasonTimeout bounds the question for a reason. An engine on the same network answers
	// OPTIONS at once or, while it loads, not at all.
	reasonTimeout = 2 * time.Second
	// maxReasons is how many addresses of an engine are asked.
	maxReasons = 4
)

// reason returns why the engine does not answer, with its URL. Envoy answers 503 whatever
// the reason is, so the engine is asked directly. Nothing else depends on the answer.
func (p *probe) reason(ctx context.Context) string {
	var reasons []string
	for _, address := range p.urls[:min(len(p.urls), maxReasons)] {
		// Envoy uses no more of it than scheme, host and port.
		u, err := url.Parse(address)
		if err != nil {
			continue
		}
		u.Path = probePath

		status, err := statusOf(ctx, http.MethodOptions, u.String(), reasonTimeout)
		reason := connectionReason(err)
		switch {
		case err != nil:
		case status >= http.StatusInternalServerError:
			reason = fmt.Sprintf("it answers with status %d %s", status, http.StatusText(status))
		default:
			reason = fmt.Sprintf("it answers this program with status %d, but not Envoy", status)
		}
		reasons = append(reasons, address+": "+reason)
	}
	return strings.Join(reasons, "; ")
}

// connectionReason says in words why an engine has not answered.
func connectionReason(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // the method and the whole URL say nothing new
	}

	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return ""
	// Before a refused connection: it can be one to the name server.
	case errors.As(err, &dns):
		return "its name cannot be resolved: " + dns.Err
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: is the engine started, and is this its port?"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it speaks HTTP without TLS: write http://"
	case errors.As(err, &certificate):
		return "its certificate is refused (SSL_CERT_FILE names the CAs): " + certificate.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", reasonTimeout)
	// So does a server of TLS that finds none.
	case closedEarly(err):
		return "it closed the connection without an answer: is it https://?"
	}
	return err.Error()
}

// closedEarly reports whether a connection was closed before any of an answer came. What is
// seen of it depends on how much of the request had been written by then.
func closedEarly(err error) bool {
	// An error of net/http that has no exported name: closed before the request.
	const beforeRequest = "server closed idle connection"

	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), beforeRequest)
}

// statusOf sends a request without a body, and returns the status of the answer.
func statusOf(ctx context.Context, method, address string, timeout time.Duration) (status int, err error) {
	status, _, err = exchange(ctx, method, address, nil, timeout)
	return status, err
}

// client sends requests as Envoy does: not through the proxy that the environment names,
// and without following redirects.
var client = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// exchange sends a request without a body, and returns status and headers of the answer.
func exchange(ctx context.Context, method, address string, header http.Header, timeout time.Duration) (
	status int, answer http.Header, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}

	// A connection that stays open would be one more that Envoy waits for when it drains.
	req.Close = true
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, errors.Join(err, resp.Body.Close())
}
