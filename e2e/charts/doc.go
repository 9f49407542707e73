// Package charts tests the Helm chart charts/envoy-harmony. What needs no tools runs
// with all tests. The rest has the build tag charts and runs by "make test-charts":
// renders, their validation against the schemas of Kubernetes and of its extensions,
// alerts and dashboard with a real Prometheus.
package charts
