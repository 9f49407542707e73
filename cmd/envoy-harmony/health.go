package main

import (
	"net/http"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// livenessService is the health service that reports that the process works.
// Kubernetes restarts a container whose liveness fails, so it does not fail while
// the process drains.
const livenessService = "liveness"

// healthServices are the names that gRPC health checks use: those of Envoy and of
// endpoint pickers.
var healthServices = []string{"", livenessService, "readiness", extprocv3.ExternalProcessor_ServiceDesc.ServiceName}

func newHealth() *health.Server {
	h := health.NewServer()
	for _, name := range healthServices {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	return h
}

// setDraining makes all services fail but liveness.
func setDraining(h *health.Server) {
	for _, name := range healthServices {
		if name != livenessService {
			h.SetServingStatus(name, healthv1.HealthCheckResponse_NOT_SERVING)
		}
	}
}

// withHealth answers gRPC health checks, over HTTP/2 without TLS, in front of the
// handler of other requests. Probes of Kubernetes know no TLS, which the ext_proc
// port may have.
func withHealth(other http.Handler, h *health.Server) http.Handler {
	checks := grpc.NewServer()
	healthv1.RegisterHealthServer(checks, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			checks.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}
