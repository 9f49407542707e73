// Package cluster tests the Helm chart in a real Kubernetes with a real Envoy Gateway:
// "make test-cluster".
package cluster
