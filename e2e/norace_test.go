//go:build !race

package e2e

// raceFlags are flags of "go build" for the programs of the tests.
var raceFlags []string
