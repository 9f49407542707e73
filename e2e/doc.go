// Package e2e tests the filter with a real Envoy, real clients and the simulated
// engine. "make envoy venv" installs the requirements.
package e2e
