package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

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
	log      *logrus.Entry
}

// probed returns log fields for the service that answers probes, which is the one
// for other models and paths.
func probed(o envoy.Options, cfg *config.Config) logrus.Fields {
	if o.Upstream != "" {
		return logrus.Fields{"upstream": o.Upstream}
	}
	for _, e := range envoyEngines(cfg) {
		// Probes go where the bootstrap sends other paths: a gRPC service has none of the API.
		if !e.GRPC {
			return logrus.Fields{"engine": e.Name, "urls": strings.Join(e.URLs, ",")}
		}
	}
	return nil
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
			line.Warn("waiting for the engine to answer")
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
	resp, err := exchange(ctx, http.MethodOptions, "http://"+p.address+"/v1/chat/completions",
		http.Header{envoy.InstanceHeader: {p.instance}}, probeTimeout)
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, resp.Header.Get(envoy.InstanceHeader), nil
}

// statusOf sends a request without a body, and returns the status of the answer.
func statusOf(ctx context.Context, method, url string, timeout time.Duration) (status int, err error) {
	resp, err := exchange(ctx, method, url, nil, timeout)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

// exchange sends a request without a body, and returns the response, whose body has been
// read and closed.
func exchange(ctx context.Context, method, url string, header http.Header, timeout time.Duration) (
	*http.Response, error,
) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}

	// A connection that stays open would be one more that Envoy waits for when it drains.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, errors.Join(err, resp.Body.Close())
}
