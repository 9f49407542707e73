package output

import (
	"math/rand/v2"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A repetition is found once it has come more often than allowed, and never in a text
// without one.
func TestLoopDetector(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))

	for period := 1; period <= maxPeriod; period++ {
		d := loopDetector{repeats: 4}
		for range 300 {
			if d.push(harmony.Token(random.IntN(100_000))) {
				t.Fatal("a random text is a repetition")
			}
		}

		sequence := make([]harmony.Token, period)
		for i := range sequence {
			sequence[i] = harmony.Token(random.IntN(100_000))
		}

		n := 0
		for !d.push(sequence[n%period]) {
			if n++; n > 5*maxPeriod+leastRepeats {
				t.Fatalf("a sequence of %d tokens is not found", period)
			}
		}

		if n+1 < max(4*period, leastRepeats) || n+1 > max(4*period, leastRepeats)+1 {
			t.Errorf("a sequence of %d tokens is found behind %d", period, n+1)
		}
	}
}
