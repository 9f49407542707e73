package main

import "testing"

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
			c := measure(target.Begin(s), s.bytes(), false)
			t.Logf("%-20s %6d bytes, %6d counted, %9d allocated, %9d steps", target.Name, c.Body, c.Counted, c.Allocated, c.Steps)
		}
	}
}
