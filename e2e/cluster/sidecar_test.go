//go:build cluster

package cluster

import "testing"

// Envoy and filter in one pod: no gateway is needed.
func TestSidecar(t *testing.T) {
	apply(t, engines)
	helm(t, "side", image+"mode: sidecar\n")
	const url = "http://side-envoy-harmony.default.svc.cluster.local/v1"
	awaitAnswer(t, url)
	wantAnswer(t, url, "Hello from the pod.")
	wantNotes(t, "side")
	wantGone(t, "side")
}
