package turn

import "github.com/envoy-harmony/envoy-harmony/harmony"

// ParseEffort reads a reasoning effort as both APIs spell it. The model knows
// low, medium and high: minimal and none become low, xhigh becomes high. With
// none the reasoning is hidden from the reply.
func ParseEffort(word string) (effort harmony.Effort, hide, ok bool) {
	switch word {
	case "none":
		return harmony.EffortLow, true, true
	case "minimal", "low":
		return harmony.EffortLow, false, true
	case "medium":
		return harmony.EffortMedium, false, true
	case "high", "xhigh":
		return harmony.EffortHigh, false, true
	}
	return "", false, false
}
