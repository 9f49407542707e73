package main

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

// TestSeeds shows that the service takes what the seeds have: requests, stored items, lists
// of tools.
func TestSeeds(t *testing.T) {
	targets, closeAll := Targets()
	defer closeAll()
	for i := range targets {
		target := &targets[i]
		for _, seed := range target.Seeds {
			s, err := parseScenario([]byte(seed))
			if err != nil {
				t.Fatalf("%s: %v: %s", target.Name, err, seed)
			}

			reserved, outcome := target.Begin(s)()
			if err := outcome.(api.Outcome).Err; err != nil {
				t.Errorf("%s: %s: %s", target.Name, err.Message, s.Request)
			}
			if len(s.Stored) > 0 && reserved == 0 {
				t.Errorf("%s: nothing is read of the store: %s", target.Name, s.Request)
			}
		}
	}
}
