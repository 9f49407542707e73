package run

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// Owner is what a runner works for: an ext_proc exchange, or a background
// response. E is the type of its own events.
type Owner[E any] interface {
	// Begin begins the handling of the next event: what the one before sent is
	// not needed any more.
	Begin(now time.Time)
	// Handle takes one of the owner's own events. An error ends the loop with
	// it.
	Handle(e E) (telemetry.MessageKind, error)
	// Expire takes a timer that has expired.
	Expire(name Timer)
	// Flush sends what the handling of the event has left.
	Flush() error
	// Done reports whether the loop is over.
	Done() bool
	// Canceled takes the end of the context, once. It reports whether the loop
	// goes on, to end in good order.
	Canceled(cause error) (goesOn bool)
}

// Serve feeds a runner and its owner until the owner is done, or ctx ends: with
// the owner's own events, those of the model call, the results of jobs, and the
// clock. Nothing else waits in between, so that each of them is handled at once.
func Serve[E any](ctx context.Context, r *Runner, own <-chan E, o Owner[E]) error {
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	done := ctx.Done()
	if err := o.Flush(); err != nil { // the owner may have begun something before the loop
		return err
	}

	for !o.Done() {
		r.arm(alarm)

		// While the client is behind, the engine's events are left where they are: its
		// connection fills up, and the engine waits too. A nil channel is never ready.
		var calls <-chan Event
		if r.upstream != nil && !r.held {
			calls = r.upstream.Events()
		}

		kind := telemetry.MessageTick
		var begun time.Time
		var err error
		select {
		case e := <-own:
			begun = r.begin(o)
			kind, err = o.Handle(e)
		case e := <-calls:
			// The event was announced. Others may have come since, and one may have taken it.
			if e.Kind == EventAnnounced {
				var ok bool
				if e, ok = e.Source.Next(); !ok {
					continue
				}
			}
			begun = r.begin(o)
			kind = telemetry.MessageEngine
			r.run.EngineEvent(e)
		case d := <-r.jobs.done:
			begun = r.begin(o)
			kind = telemetry.MessageJob
			r.run.JobDone(d)
		case <-alarm.C:
			begun = r.begin(o)
			r.expire(o, begun)
		case <-done:
			// The end of the context is taken once: the owner may go on without it.
			begun = r.begin(o)
			if done = nil; !o.Canceled(context.Cause(ctx)) {
				return nil
			}
		}

		r.env.Telemetry.Metrics.Message(kind, r.env.Now().Sub(begun))
		if err != nil {
			return err
		}
		if err := o.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// arm sets the alarm to the next deadline.
func (r *Runner) arm(alarm *time.Timer) {
	if next := r.Timers.Next(); next.IsZero() {
		alarm.Stop()
	} else {
		alarm.Reset(next.Sub(r.env.Now()))
	}
}

// clocked is the part of an [Owner] that does not depend on its events.
type clocked interface {
	Begin(now time.Time)
	Expire(name Timer)
}

// begin begins the handling of an event, and returns when.
func (r *Runner) begin(o clocked) time.Time {
	now := r.env.Now()
	if r.run != nil {
		r.run.At(now)
	}
	o.Begin(now)
	return now
}

func (r *Runner) expire(o clocked, now time.Time) {
	for {
		name, ok := r.Timers.Expired(now)
		if !ok {
			return
		}
		o.Expire(name)
	}
}
