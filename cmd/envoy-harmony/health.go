package main

import (
	"net/http"
	"strings"
	"sync"

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

// readiness is what health checks say of the process:
//
//	                           at the ext_proc port, for Envoy   at the admin port, for Kubernetes
//	the store has not answered ready                             not ready
//	it has answered            ready                             ready, also if it is down later
//	the process drains         not ready                         not ready
//
// A rollout with a store_url that is wrong stops at its first pod. Envoy does not ask for the
// store: what needs none is answered.
type readiness struct {
	envoy *health.Server
	pod   *health.Server

	// mu protects what follows, and the order in which it is reported.
	mu       sync.Mutex
	reached  bool // the store has answered
	draining bool
}

func newReadiness() *readiness {
	r := &readiness{envoy: health.NewServer(), pod: health.NewServer()}
	r.change(func() {})
	return r
}

// storeReached notes that the store has answered.
func (r *readiness) storeReached() { r.change(func() { r.reached = true }) }

// drain makes all services fail but liveness.
func (r *readiness) drain() { r.change(func() { r.draining = true }) }

// change changes the state, and reports it.
func (r *readiness) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	for _, name := range healthServices {
		live := name == livenessService
		r.envoy.SetServingStatus(name, statusIf(live || !r.draining))
		r.pod.SetServingStatus(name, statusIf(live || !r.draining && r.reached))
	}
}

// missing says why the pod is not ready; "": it is.
func (r *readiness) missing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.draining:
		return "draining"
	case !r.reached:
		return "the store has not answered yet: check store_url (the log says why)"
	}
	return ""
}

func statusIf(serving bool) healthv1.HealthCheckResponse_ServingStatus {
	if serving {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
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
