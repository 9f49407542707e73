// Package e2e holds the tests through a real Envoy: real clients before it,
// the simulated engine behind it, the filter beside it. They need what
// "make envoy venv" fetches.
package e2e
