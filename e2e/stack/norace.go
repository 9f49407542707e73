//go:build !race

package stack

// raceFlags are flags of "go build" for the programs of the tests, and raceSuffix ends
// the name of their folder.
var (
	raceFlags  []string
	raceSuffix = ""
)
