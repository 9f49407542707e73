package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Requests is a load of requests that are sent at a fixed rate, whether or not those
// before have ended.
type Requests struct {
	// Rate is how many are sent a second, Count how many in all.
	Rate  float64
	Count int
	// Text returns the messages of a request.
	Text func(i int) []string
	// Open is how many may be under way at one time; those beyond fail at once. 0: any number.
	Open int64
}

var errOpen = errors.New("too many requests are under way: the target does not keep up")

// Run loads a target.
func (r Requests) Run(ctx context.Context, c *Client, t *Target) (*Sample, error) {
	type result struct {
		first, last time.Duration
		err         error
	}

	// Made before: the tokens of a long prompt take longer than the time between two requests.
	bodies := make([][]byte, r.Count)
	for i := range bodies {
		bodies[i] = t.Body(r.Text(i))
	}

	results := make([]result, r.Count)
	var all sync.WaitGroup
	// The first request must not be late because of what measuring begins with.
	begin := time.Now().Add(50 * time.Millisecond)

	sent := 0
	var open atomic.Int64
	sample, err := measured(t, func() (failed error) {
		for i := range results {
			due := begin.Add(time.Duration(float64(i) / r.Rate * float64(time.Second)))
			// Those that are under way end by the same context, and are waited for below.
			if failed = pause(ctx, time.Until(due)); failed != nil {
				break
			}
			sent++
			all.Go(func() {
				o := &results[i]
				o.first = -1
				defer open.Add(-1)
				if open.Add(1) > r.Open && r.Open > 0 {
					o.err = errOpen
					return
				}
				o.err = c.Stream(ctx, t, bodies[i], func(at time.Time, _ int) {
					if o.first < 0 {
						// Since it was due and not since it was sent: a client that is held up must not hide it.
						o.first = at.Sub(due)
					}
				})
				o.last = time.Since(due)
			})
		}
		all.Wait()
		return failed
	})

	for _, o := range results[:sent] {
		if o.err == nil && o.first < 0 {
			o.err = errors.New("the reply has no token")
		}
		sample.fail(o.err)
		if o.err == nil {
			sample.First = append(sample.First, o.first)
			sample.Latency = append(sample.Latency, o.last)
		}
	}

	sample.Units = r.Count
	return sample, err
}

// measured measures a target's processes, and this one, while work runs.
func measured(t *Target, work func() error) (*Sample, error) {
	all := append([]Process{{"client", os.Getpid()}}, t.Procs...)
	before, err := Measure(all)
	if err != nil {
		return &Sample{}, err
	}
	begin := time.Now()
	failed := work()
	after, err := Measure(all)
	return &Sample{Usage: after.Since(before), Time: time.Since(begin)}, errors.Join(failed, err)
}

// burst starts streams at once whose tokens come as fast as they can.
func burst(ctx context.Context, c *Client, t *Target, streams, words int) (*Sample, error) {
	body := t.Body([]string{t.words(words)})
	got := make([]int, streams)
	failed := make([]error, streams)

	sample, err := measured(t, func() error {
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				failed[i] = c.Stream(ctx, t, body, func(_ time.Time, n int) { got[i] += n })
			})
		}
		all.Wait()
		return nil
	})
	for i := range streams {
		if failed[i] == nil && got[i] != words {
			failed[i] = fmt.Errorf("a stream has %d tokens, not %d", got[i], words)
		}
		sample.fail(failed[i])
		sample.Units += got[i]
	}
	return sample, err
}

// openTime is how long held streams may take to open.
const openTime = 20 * time.Second

// hold opens streams that get one word and then nothing, and reports what memory the
// processes have with them beyond what they had before, for each stream.
func hold(ctx context.Context, c *Client, t *Target, streams int, settle time.Duration) (*Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	// Three tokens of the head and one word, then nothing.
	body := t.Body([]string{script(2, "fault=hang@4")})

	before, err := Measure(t.Procs)
	if err != nil {
		cancel()
		return nil, err
	}

	var all, open sync.WaitGroup
	failed := make([]error, streams)
	open.Add(streams)
	for i := range streams {
		all.Go(func() {
			// Also when the stream has failed without a word: open is waited for.
			opened := sync.OnceFunc(open.Done)
			failed[i] = c.Stream(ctx, t, body, func(time.Time, int) { opened() })
			opened()
		})
		if err = pause(ctx, connectEvery); err != nil {
			// The streams that are not begun any more.
			open.Add(i + 1 - streams)
			break
		}
	}

	late := time.AfterFunc(openTime, cancel)
	open.Wait()
	if !late.Stop() {
		err = errors.New("the streams did not all open")
	}

	// What only the opening of the streams needed is freed meanwhile.
	err = errors.Join(err, pause(ctx, settle))
	after, failure := Measure(t.Procs)
	cancel()
	all.Wait()

	sample := &Sample{Units: streams, Usage: Usage{Memory: map[string]int64{}}}
	for _, f := range failed {
		// Every held stream ends by the cancel above.
		if !errors.Is(f, context.Canceled) {
			sample.fail(f)
		}
	}

	for name, bytes := range after.Memory {
		sample.Usage.Memory[name] = (bytes - before.Memory[name]) / int64(streams)
	}
	return sample, errors.Join(err, failure)
}
