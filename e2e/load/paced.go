package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

// Paced is a load of streams that each get a token at a fixed rate.
type Paced struct {
	Streams int
	// Rate is the tokens a second of a stream.
	Rate float64
	// TokensAnEvent is how many the engine sends at once; 0 and 1: each by itself.
	TokensAnEvent int

	// Window is what is measured, after Lead.
	Lead   time.Duration
	Window time.Duration
}

const (
	// connectEvery is the time between two requests of a paced load. All streams are
	// open before the first token is due.
	connectEvery = 2 * time.Millisecond
	connectSlack = 500 * time.Millisecond
	// drainTime is how long streams may take to end after the window.
	drainTime = 5 * time.Second
)

// pacedStream is one stream of a paced load.
type pacedStream struct {
	due   func(word int) time.Time
	words int
	// from and to are the window.
	from, to time.Time

	// next is the next word that is to arrive, inWindow how many arrived in the window.
	next     int
	inWindow int
	latency  []time.Duration
	err      error
}

// arrived notes words.
func (s *pacedStream) arrived(at time.Time, n int) {
	if !at.Before(s.from) && at.Before(s.to) {
		s.inWindow += n
	}
	for ; n > 0; n-- {
		s.note(at)
	}
}

// note notes the next word, if it was due in the window.
func (s *pacedStream) note(at time.Time) {
	// By the time when it was due: a token that comes late would else leave the window with its delay.
	if due := s.due(s.next); !due.Before(s.from) && due.Before(s.to) {
		s.latency = append(s.latency, at.Sub(due))
	}
	s.next++
}

// Run loads a target. The streams' events are spread evenly over the time between two of
// a stream. A token that has not arrived when the load ends counts with that time.
func (p Paced) Run(parent context.Context, c *Client, t *Target) (*Sample, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)

	between := time.Duration(float64(max(p.TokensAnEvent, 1)) * float64(time.Second) / p.Rate)
	// Microseconds are what the simulator's directive can say.
	start := time.Now().Add(connectSlack + time.Duration(p.Streams)*connectEvery).Truncate(time.Microsecond)
	from, to := start.Add(p.Lead), start.Add(p.Lead+p.Window)

	streams := make([]*pacedStream, p.Streams)
	var all sync.WaitGroup
	for i := range streams {
		// Spread over the time between two events: all at once would be a burst at each tick.
		begin := start.Add(between * time.Duration(i) / time.Duration(p.Streams)).Truncate(time.Microsecond)

		// A stream lasts a little longer than the window, so that it does not end within it.
		s := &pacedStream{
			from: from, to: to, words: int(math.Ceil((p.Lead+p.Window+between).Seconds()*p.Rate)) + 1,
			due: func(word int) time.Time {
				return begin.Add(time.Duration(float64(word+headTokens) / p.Rate * float64(time.Second)))
			},
		}

		streams[i] = s
		body := t.Body([]string{script(s.words, p.directives(begin)...)})
		all.Go(func() { s.err = c.Stream(ctx, t, body, s.arrived) })
		if err := pause(ctx, connectEvery); err != nil {
			return nil, err
		}
	}

	sample, err := window(ctx, t, from, to)
	if err != nil {
		cancel(err)
		all.Wait()
		return nil, err
	}

	// A stream that hangs must not hold up the figures of the others.
	late := time.AfterFunc(drainTime, func() { cancel(errLate) })
	all.Wait()
	late.Stop()

	p.collect(sample, streams)
	return sample, parent.Err()
}

// directives are those of a stream whose first token is due at a time.
func (p Paced) directives(begin time.Time) []string {
	all := paced(p.Rate, begin)
	if p.TokensAnEvent > 1 {
		all = append(all, fmt.Sprintf("tokens-per-event=%d", p.TokensAnEvent))
	}
	return all
}

// errLate means that the load was ended while streams lacked tokens.
var errLate = errors.New("the stream did not end in time")

// window measures a target's processes, and this one, between two times.
func window(ctx context.Context, t *Target, from, to time.Time) (*Sample, error) {
	// The client as well: where it is what is slow, the latencies are its own.
	all := append([]Process{{"client", os.Getpid()}}, t.Procs...)
	if err := pause(ctx, time.Until(from)); err != nil {
		return nil, err
	}
	before, err := Measure(all)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Until(to)); err != nil {
		return nil, err
	}
	after, err := Measure(all)
	return &Sample{Usage: after.Since(before), Time: to.Sub(from)}, err
}

// collect adds what the streams noted.
func (p Paced) collect(sample *Sample, streams []*pacedStream) {
	end := time.Now()
	for _, s := range streams {
		switch {
		// Tokens that never came are the latest of all: without them, the worst load would look best.
		case errors.Is(s.err, errLate) || errors.Is(s.err, context.Canceled):
			for s.next < s.words {
				s.note(end)
			}
		case s.err != nil:
			sample.fail(s.err)
		case s.next != s.words:
			sample.fail(fmt.Errorf("a stream has %d tokens, not %d", s.next, s.words))
		}
		sample.Units += s.inWindow
		sample.Latency = append(sample.Latency, s.latency...)
	}
}
