package store

import (
	"context"
	"errors"
	"time"
)

const (
	// breakerHangs is how many accesses in a row have to hang before the store
	// counts as hanging.
	breakerHangs = 5
	// breakerPatience is how long an access that fails may take without having
	// hung. A store that rejects accesses at once delays nobody.
	breakerPatience = 250 * time.Millisecond
	// breakerPause is the time between two probes.
	breakerPause = time.Second
)

// breakerState is what a breaker does with accesses.
type breakerState uint8

const (
	breakerClosed   breakerState = iota // accesses are made
	breakerOpen                         // accesses are rejected
	breakerHalfOpen                     // accesses are rejected while one probe is made
)

// verdict is what the end of an access shows about the store.
type verdict uint8

const (
	verdictAnswered verdict = iota
	verdictFailed           // it failed at once, or was canceled
	verdictHung             // it was not answered in time, or failed late
)

// breaker decides whether accesses to a store are made. It opens after
// breakerHangs accesses in a row that hung, and closes when an access is
// answered or a probe does not hang. The caller reports the time, makes the
// probes, and serializes calls.
type breaker struct {
	state   breakerState
	hangs   int       // accesses that have hung since the last one that was answered
	probeAt time.Time // the next probe
}

// judge returns what an access shows that took this long and returned err.
func judge(err error, took time.Duration) verdict {
	switch {
	case Answered(err):
		return verdictAnswered
	case errors.Is(err, context.Canceled), took < breakerPatience:
		return verdictFailed
	}
	return verdictHung
}

// ended takes the verdict on an access.
func (b *breaker) ended(v verdict, now time.Time) {
	switch {
	case v == verdictAnswered:
		*b = breaker{}
	case v == verdictHung && b.state == breakerClosed:
		b.hangs++
		if b.hangs >= breakerHangs {
			b.state, b.probeAt = breakerOpen, now.Add(breakerPause)
		}
	}
}

// probe reports whether a probe is to be made now; probed takes its verdict. A clock that
// was set back does not delay it.
func (b *breaker) probe(now time.Time) bool {
	left := b.probeAt.Sub(now)
	if b.state != breakerOpen || left > 0 && left <= breakerPause {
		return false
	}
	b.state = breakerHalfOpen
	return true
}

// probed takes the verdict on the probe. A store that rejects it at once hangs no
// longer.
func (b *breaker) probed(v verdict, now time.Time) {
	switch {
	case v != verdictHung:
		*b = breaker{}
	case b.state == breakerHalfOpen:
		b.state, b.probeAt = breakerOpen, now.Add(breakerPause)
	}
}
