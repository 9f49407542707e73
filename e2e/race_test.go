//go:build race

package e2e

import "os"

// raceFlags are flags of "go build" for the programs of the tests: under the race
// detector they have it too.
var raceFlags = []string{"-race"}

// A program that finds a race ends, so that its test fails and prints its log.
func init() { _ = os.Setenv("GORACE", "halt_on_error=1") }
