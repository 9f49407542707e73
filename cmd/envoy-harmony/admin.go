package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// admin is the HTTP server for metrics and health checks. It also answers gRPC
// health checks, on the same port.
type admin struct {
	listener net.Listener
	server   *http.Server
}

// listenAdmin listens at an address. GET /metrics returns Prometheus metrics, with
// exemplars for scrapers that accept OpenMetrics,
// /healthz reports that the process runs, and /readyz whether it accepts new
// requests. GET / lists them. gRPC health checks report the same. inspector serves /inspector/; nil: nothing does.
func listenAdmin(ctx context.Context, address string, metrics prometheus.Gatherer, ready *readiness,
	inspector http.Handler,
) (*admin, error) {
	l, err := listenAt(ctx, "admin", address)
	if err != nil {
		return nil, err
	}

	mux := http.NewServeMux()
	// Exemplars, which name traces, exist in OpenMetrics only.
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	// A process that drains is well: Kubernetes must not restart it while its requests end.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := ready.missing(); missing != "" {
			http.Error(w, missing, http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})

	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, indexPage(inspector != nil))
	})

	if inspector != nil {
		mux.Handle("GET /inspector/", inspector)
		// The page names its files relative to the folder.
		mux.Handle("GET /inspector", http.RedirectHandler("/inspector/", http.StatusMovedPermanently))
	}

	// Kubernetes asks for health by gRPC on this port too, without TLS.
	return &admin{l, newHTTPServer(withHealth(mux, ready.pod))}, nil
}

// indexPage lists the pages of the admin port. Its links are relative: a proxy, such as that
// of kubectl, may serve them below a path of its own.
func indexPage(inspector bool) string {
	page := `<!doctype html>
<title>envoy-harmony</title>
<p>envoy-harmony: the filter's admin port
<ul>
<li><a href="metrics">/metrics</a>: for Prometheus
<li><a href="healthz">/healthz</a>: the process works
<li><a href="readyz">/readyz</a>: it takes new requests
`
	if inspector {
		return page + "<li><a href=\"inspector/\">/inspector/</a>: recorded requests\n</ul>\n"
	}
	return page + "<li>/inspector/ is off: set inspector.enabled, record.percent and record.content\n</ul>\n"
}

// newHTTPServer makes a server of HTTP/1.1 and, without TLS, of HTTP/2.
func newHTTPServer(h http.Handler) *http.Server {
	// Who connects and says nothing must not hold a connection for good.
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, Protocols: &http.Protocols{}}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

func (a *admin) serve() error { return a.server.Serve(a.listener) }

// close ends the server and closes its connections.
func (a *admin) close() { _ = a.server.Close() }

// address returns the host:port, with the port that was chosen.
func (a *admin) address() string { return a.listener.Addr().String() }
