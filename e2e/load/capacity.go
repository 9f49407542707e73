package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// capacityLatency is what one request in a hundred may take, to its last byte, below
	// saturation.
	capacityLatency = 100 * time.Millisecond
	// How often the search halves what is between the best rate and one that was too much:
	// to 6 % of the result at most. That is less than two runs on one machine differ.
	capacityHalvings = 4
	// capacityOpen bounds the requests that are under way, which take a file each here and two in
	// Envoy. At a rate for which so many are too few, requests take too long in any case.
	capacityOpen = 4096
)

// capacity looks for the greatest rate of short requests at which 99 of 100 take at
// most capacityLatency, at each target for itself. Client and engine take part of the
// machine: their columns say how much.
func (l *Loader) capacity(ctx context.Context) error {
	for _, t := range l.Targets {
		best, note := &Sample{}, "the steps end before the capacity"
		o := l.Options
		rate, err := highest(o.CapacityFrom, o.CapacityTo, capacityHalvings, func(rate float64) (bool, error) {
			s, late, err := l.capacityStep(ctx, t, rate)
			switch {
			case err != nil:
			case late:
				p99 := ms(Quantile(s.Latency, 0.99))
				note = fmt.Sprintf("%.0f/s: p99 %.0f ms, %d failed", rate, p99, s.Failed)
			default:
				best = s
			}
			return !late, err
		})
		if err != nil {
			return fmt.Errorf("capacity, %s: %w", t.Name, err)
		}

		row := newRow(fmt.Sprintf("capacity, p99 <= %d ms", capacityLatency.Milliseconds()), t, "request", best)
		// What was asked for: the time of a sample ends with its last reply.
		row.Rate, row.Note = rate, note
		l.Report.Rows = append(l.Report.Rows, row)
	}
	return nil
}

// capacityStep loads a target with a rate of requests, and reports whether it is too
// much. It tries such a rate again: the machine may have done something else.
func (l *Loader) capacityStep(ctx context.Context, t *Target, rate float64) (s *Sample, late bool, err error) {
	window := l.Options.CapacityWindow
	load := shortRequests(rate, window)
	load.Open = capacityOpen
	for range 2 {
		// What the step before has left, such as connections that close, is no part of this one.
		if err := pause(ctx, connectSlack); err != nil {
			return nil, false, err
		}

		// A server that does not keep up must not hold up the search.
		bounded, cancel := context.WithTimeout(ctx, window+drainTime)
		s, err = load.Run(bounded, l.Client, t)
		overtime := bounded.Err() != nil
		cancel()

		// That the requests could not even be sent in time is a rate that is too much for the
		// client. Every other error is one of the run, such as a process that has ended.
		if err != nil && (!overtime || ctx.Err() != nil) {
			return nil, false, err
		}

		p99 := Quantile(s.Latency, 0.99)
		late = overtime || s.Failed > 0 || p99 > capacityLatency
		l.Log("capacity, %s, %.0f requests/s: p50 %.1f ms, p99 %.1f ms, %d failed", t.Name, rate,
			ms(Quantile(s.Latency, 0.5)), ms(p99), s.Failed)
		if !late {
			break
		}
	}
	return s, late, nil
}

// highest looks for the highest value that try accepts, and asks for little more than
// that: it doubles a first value until one is refused, or is above to, and then halves
// what is between so many times. What is accepted grows with each call, so the last that
// was accepted is the result; 0 if none was.
func highest(from, to float64, halvings int, try func(float64) (bool, error)) (float64, error) {
	accepted, refused := 0.0, 0.0
	for value := from; refused == 0 && value <= to; value *= 2 {
		ok, err := try(value)
		if err != nil {
			return 0, err
		}
		if ok {
			accepted = value
		} else {
			refused = value
		}
	}

	// There is nothing between.
	if refused == 0 {
		return accepted, nil
	}

	for range halvings {
		middle := (accepted + refused) / 2
		ok, err := try(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			accepted = middle
		} else {
			refused = middle
		}
	}
	return accepted, nil
}
