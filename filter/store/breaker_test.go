package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestBreaker reports verdicts to a breaker and checks the state after each.
func TestBreaker(t *testing.T) {
	t.Parallel()
	const answered, failed, hung = verdictAnswered, verdictFailed, verdictHung
	type step struct {
		after time.Duration // before the verdict
		probe bool          // the verdict is that on a probe
		verdict
		want breakerState
	}
	opened := []step{{verdict: hung}, {verdict: hung}, {verdict: hung}, {verdict: hung}, {verdict: hung, want: breakerOpen}}
	for name, steps := range map[string][]step{
		"five accesses in a row that hang open it":        opened,
		"an answer between them starts the count again":   {{verdict: hung}, {verdict: hung}, {verdict: hung}, {verdict: hung}, {verdict: answered}, {verdict: hung}},
		"failures at once do not count":                   {{verdict: failed}, {verdict: failed}, {verdict: failed}, {verdict: failed}, {verdict: failed}, {verdict: failed}},
		"failures at once do not start the count again":   {{verdict: hung}, {verdict: hung}, {verdict: hung}, {verdict: hung}, {verdict: failed}, {verdict: hung, want: breakerOpen}},
		"a late answer of an access closes it":            append(opened[:5:5], step{verdict: answered}),
		"other ends of accesses leave it open":            append(opened[:5:5], step{verdict: hung, want: breakerOpen}, step{verdict: failed, want: breakerOpen}),
		"a probe that is answered closes it":              append(opened[:5:5], step{after: breakerPause, probe: true, verdict: answered}),
		"a probe that fails at once closes it":            append(opened[:5:5], step{after: breakerPause, probe: true, verdict: failed}),
		"a probe that hangs leaves it open":               append(opened[:5:5], step{after: breakerPause, probe: true, verdict: hung, want: breakerOpen}),
		"after it has closed, five more have to hang":     append(opened[:5:5], step{after: breakerPause, probe: true, verdict: answered}, step{verdict: hung}),
		"a probe after one that hung closes it":           append(opened[:5:5], step{after: breakerPause, probe: true, verdict: hung, want: breakerOpen}, step{after: breakerPause, probe: true, verdict: answered}),
		"an answer while a probe is made closes it first": append(opened[:5:5], step{verdict: answered}, step{verdict: hung}),
	} {
		var b breaker
		now := time.Unix(1, 0)
		for i, s := range steps {
			now = now.Add(s.after)
			if s.probe {
				if !b.probe(now) || b.probe(now) {
					t.Errorf("%s: step %d: not exactly one probe", name, i)
				}
				b.probed(s.verdict, now)
			} else {
				if b.probe(now) {
					t.Errorf("%s: step %d: a probe too early", name, i)
				}
				b.ended(s.verdict, now)
			}
			if b.state != s.want {
				t.Errorf("%s: state %d after step %d, want %d", name, b.state, i, s.want)
			}
		}
	}
}

// TestBreakerClockJumps sets a clock without a monotonic reading while the breaker is open.
func TestBreakerClockJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		by   time.Duration
		want bool // a probe is made
	}{
		"not set":                  {0, false},
		"forward within the pause": {breakerPause / 2, false},
		"forward past the pause":   {day, true},
		"back by a moment":         {-time.Millisecond, true},
		"back by a day":            {-day, true},
	} {
		var b breaker
		now := time.Unix(1_800_000_000, 0)
		for range breakerHangs {
			b.ended(verdictHung, now)
		}
		if b.state != breakerOpen {
			t.Fatalf("%s: state %d", name, b.state)
		}
		now = now.Add(c.by)
		if got := b.probe(now); got != c.want {
			t.Errorf("%s: a probe is made: %v, want %v", name, got, c.want)
		}
		if !c.want {
			continue
		}
		b.probed(verdictHung, now)
		if b.probe(now.Add(breakerPause / 2)) {
			t.Errorf("%s: the next probe is too early", name)
		}
		if !b.probe(now.Add(breakerPause)) {
			t.Errorf("%s: no next probe", name)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		err  error
		took time.Duration
		want verdict
	}{
		{nil, time.Hour, verdictAnswered},
		{ErrNotFound, time.Hour, verdictAnswered},
		{ErrConflict, 0, verdictAnswered},
		{ErrTooLarge, 0, verdictAnswered},
		{broken, 0, verdictFailed},
		{broken, breakerPatience, verdictHung},
		{context.Canceled, time.Hour, verdictFailed},
		{context.DeadlineExceeded, 0, verdictFailed},
		{context.DeadlineExceeded, time.Second, verdictHung},
	} {
		if got := judge(c.err, c.took); got != c.want {
			t.Errorf("%v after %v: %d, want %d", c.err, c.took, got, c.want)
		}
	}
}
