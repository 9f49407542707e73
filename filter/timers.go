package filter

import "time"

// timer names one of an exchange's deadlines. In full-duplex mode Envoy bounds
// nothing, so all of them are ours.
type timer int

const (
	timerBody      timer = iota // the client's body must have ended
	timerFirst                  // the engine's first event must have come
	timerIdle                   // the engine's next event must have come
	timerTotal                  // everything must be over
	timerHold                   // withheld reply headers are sent
	timerKeepAlive              // an SSE comment is sent
	timerGrace                  // every choice has finished: the engine's closing words are no longer waited for
	timerJournal                // events of a background response are stored
	timerCount
)

// timers holds the exchange's deadlines; zero is off.
type timers [timerCount]time.Time

// set arms a timer d after from; d <= 0 leaves it off.
func (t *timers) set(name timer, from time.Time, d time.Duration) {
	t[name] = time.Time{}
	if d > 0 {
		t[name] = from.Add(d)
	}
}

func (t *timers) clear(name timer) { t[name] = time.Time{} }

func (t *timers) clearAll() { *t = timers{} }

// next is the earliest deadline, zero if none is armed.
func (t *timers) next() time.Time {
	var first time.Time
	for _, at := range t {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// due takes one timer that has expired, false if there is none.
func (t *timers) due(now time.Time) (timer, bool) {
	for name, at := range t {
		if !at.IsZero() && !at.After(now) {
			t[name] = time.Time{}
			return timer(name), true
		}
	}
	return 0, false
}
