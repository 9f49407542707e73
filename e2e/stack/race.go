//go:build race

package stack

import "os"

// raceFlags are flags of "go build" for the programs of the tests: under the race
// detector they have it too. raceSuffix ends the name of their folder.
var (
	raceFlags  = []string{"-race"}
	raceSuffix = "-race"
)

// A program that finds a race ends, so that its test fails and prints its log.
func init() { _ = os.Setenv("GORACE", "halt_on_error=1") }
