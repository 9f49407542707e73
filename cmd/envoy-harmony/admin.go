package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// admin is the HTTP server of metrics and health.
type admin struct {
	listener net.Listener
	server   *http.Server
}

// listenAdmin takes the address. GET /metrics is Prometheus's, /healthz says
// that the process lives, /readyz that it takes requests.
func listenAdmin(ctx context.Context, address string, metrics prometheus.Gatherer, ready func() bool) (*admin, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return &admin{l, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}, nil
}

func (a *admin) serve() error { return a.server.Serve(a.listener) }

// close ends the server and its connections.
func (a *admin) close() { _ = a.server.Close() }

// address is the real host:port.
func (a *admin) address() string { return a.listener.Addr().String() }
