package run

import (
	"slices"
	"time"
)

// closingGrace is how long the engine may take from its last choice's end to
// its closing usage event.
const closingGrace = 2 * time.Second

// Timer names a deadline. In full-duplex mode Envoy bounds nothing, so all
// deadlines are the filter's.
type Timer int

// The timers.
const (
	TimerBody      Timer = iota // the client's body must have ended
	TimerHandle                 // the endpoint must have an outcome
	TimerFirst                  // the engine's first event must have come
	TimerIdle                   // the engine's next event must have come
	TimerTotal                  // the reply must be complete
	TimerHold                   // withheld reply headers are sent
	TimerKeepAlive              // a keep-alive is sent
	TimerGrace                  // every choice has finished: the engine's last events are no longer awaited
	TimerJournal                // events of a background response are stored
	timerCount
)

// String returns the timer's name, for records.
func (t Timer) String() string { return timerNames[t] }

var timerNames = [timerCount]string{
	"body", "handle", "first", "idle", "total", "hold", "keep-alive", "grace", "journal",
}

// TimerOf returns the timer with a name; ok is false if there is none.
func TimerOf(name string) (t Timer, ok bool) {
	i := slices.Index(timerNames[:], name)
	return Timer(i), i >= 0
}

// Timers holds deadlines; zero is off.
type Timers [timerCount]time.Time

// Set arms a timer d after from; d <= 0 switches it off.
func (t *Timers) Set(name Timer, from time.Time, d time.Duration) {
	t[name] = time.Time{}
	if d > 0 {
		t[name] = from.Add(d)
	}
}

// Armed reports whether a timer is on.
func (t *Timers) Armed(name Timer) bool { return !t[name].IsZero() }

// Clear switches a timer off.
func (t *Timers) Clear(name Timer) { t[name] = time.Time{} }

// ClearAll switches all timers off.
func (t *Timers) ClearAll() { *t = Timers{} }

// Next is the earliest deadline, zero if none is armed.
func (t *Timers) Next() time.Time {
	var first time.Time
	for _, at := range t {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Expired switches off and returns one timer whose deadline has come; ok reports
// whether there is one.
func (t *Timers) Expired(now time.Time) (name Timer, ok bool) {
	for name, at := range t {
		if !at.IsZero() && !at.After(now) {
			t[name] = time.Time{}
			return Timer(name), true
		}
	}
	return 0, false
}

// engineGoesOn takes that an event of the model call has come.
func (t *Timers) engineGoesOn(now time.Time, limits *Limits) {
	t.Clear(TimerFirst)
	t.Set(TimerIdle, now, limits.Idle)
}

// clearCall switches off the deadlines of the model call.
func (t *Timers) clearCall() {
	t.Clear(TimerFirst)
	t.Clear(TimerIdle)
	t.Clear(TimerGrace)
}

// postpone sets a timer of the engine anew, and reports whether the timer is one.
func (t *Timers) postpone(name Timer, now time.Time, limits *Limits) bool {
	switch name {
	case TimerFirst:
		t.Set(name, now, limits.FirstToken)
	case TimerIdle:
		t.Set(name, now, limits.Idle)
	case TimerGrace:
		t.Set(name, now, closingGrace)
	default:
		return false
	}
	return true
}
