package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter"
)

const renderUsage = `
Serves what turns requests into tokens and tokens into replies, over plain HTTP and
without Envoy, engine or store: /v1/chat/completions/render, /v1/responses/render,
/v1/messages/render, the same with /derender, /tokenize and /detokenize
(docs/render.md). /health, /readyz and /metrics are there too. The configuration is
that of serve; models, limits and date count.

  envoy-harmony render --listen 0.0.0.0:8001
  curl -s http://127.0.0.1:8001/tokenize -H 'content-type: application/json' -d '{"prompt": "Hello"}'`

const (
	defaultRenderListen = "127.0.0.1:8001"
	renderReadTimeout   = time.Minute      // of a request's body
	renderDrain         = 20 * time.Second // of requests, when a shutdown begins
)

func renderCommand(ctx context.Context, p program, args []string) error {
	s := newSettings(p, "render", renderUsage)
	s.engineless = true
	address := s.flags.String("listen", defaultRenderListen, "`address`: host:port or unix:///path")

	if err := s.parse(args); err != nil {
		return err
	}

	cfg, log, err := s.load()
	if err != nil {
		return err
	}
	s.memory.apply(log, cfg.Limits.MaxInflightBytes)

	registry := prometheus.NewRegistry()
	seconds := renderSeconds(registry)
	service, err := filter.NewRenderService(cfg, filter.Options{Log: log},
		func(path string, status int, took time.Duration) {
			seconds.WithLabelValues(path, strconv.Itoa(status)).Observe(took.Seconds())
		})
	if err != nil {
		return fmt.Errorf("make the render service: %w", err)
	}

	listener, err := listenAt(ctx, "--listen", *address)
	if err != nil {
		return err
	}
	log.WithFields(thisBuild().fields()).WithField("listen", listener.Addr().String()).Info("rendering")
	return serveRendering(ctx, listener, renderMux(service, registry), log)
}

// renderSeconds is the metric of the render service.
func renderSeconds(registry *prometheus.Registry) *prometheus.HistogramVec {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "harmony_render_seconds", Help: "Time of requests of the render service, with their bodies, by path " +
			"and HTTP status.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15},
	}, []string{"path", "status"})
	registry.MustRegister(seconds, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return seconds
}

// renderMux adds health checks and metrics to the service.
func renderMux(service http.Handler, registry prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", service)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	// The first is where probes that were written for vLLM look.
	for _, path := range []string{"/health", "/healthz", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	}
	return mux
}

// serveRendering serves until ctx ends, and then the requests that have begun.
func serveRendering(ctx context.Context, listener net.Listener, h http.Handler, log *logrus.Logger) error {
	server := newHTTPServer(h)
	server.ReadTimeout = renderReadTimeout

	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	select {
	case err := <-ended:
		return fmt.Errorf("render: %w", err)
	case <-ctx.Done():
	}

	log.Info("draining")
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), renderDrain)
	defer cancel()
	// Serve returns when Shutdown begins: its result is looked at after. Close ends what is left then.
	err := errors.Join(server.Shutdown(drain), server.Close())
	if stopped := <-ended; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}

	if err != nil {
		return fmt.Errorf("render: drain: %w", err)
	}
	return nil
}
