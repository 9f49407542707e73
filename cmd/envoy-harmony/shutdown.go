package main

import (
	"context"
	"time"
)

// graces bound what a shutdown waits for beside running requests, so that nothing
// that hangs keeps the process alive. docs/operations.md has their sum.
type graces struct {
	abort time.Duration // for the errors of running requests to reach their clients
	stop  time.Duration // for streams that were reset
	close time.Duration // for background responses that fail to be stored
}

var shutdownGraces = graces{5 * time.Second, 5 * time.Second, 30 * time.Second}

// drain makes health checks fail, waits for DrainDelay so that load balancers
// react, and then waits until running requests end, at most for DrainTimeout. After
// that they end with an error.
func (s *service) drain() {
	cfg := s.filter.Config()
	s.ready.drain()
	time.Sleep(cfg.DrainDelay.Duration)

	s.filter.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), cfg.DrainTimeout.Duration)
	defer cancel()

	// GracefulStop has no bound of its own, and one stream that hangs would hold it up for good.
	done := doneOf(func() {
		s.grpc.GracefulStop()
		s.filter.CloseSockets(ctx)
	})
	select {
	case <-done:
	case <-ctx.Done():
		s.log.Warnf("the drain timeout of %s has passed: running requests end with an error", cfg.DrainTimeout)
		s.filter.Abort()
		within(s.graces.abort, done)
	}
	s.stopWithin(ctx)
}

// doneOf runs do on another goroutine, and returns what is closed when do has ended.
func doneOf(do func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	return done
}

// within waits for done, and reports whether that was closed in time.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// stop ends the service at once.
func (s *service) stop() {
	// A context that has ended is the least time there is.
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s.stopWithin(now)
}

// stopWithin ends all servers. Background responses may run until ctx ends. Only
// the first call has an effect.
func (s *service) stopWithin(ctx context.Context) {
	s.stopped.Do(func() {
		// Streams first: they use the filter, which uses OTLP. The admin port stays to the
		// last, so that the end can be watched.
		_ = s.sockets.close()
		s.filter.CloseSockets(ctx)
		served := s.stopStreams()
		s.closeFilter(ctx)
		if err := s.otel.close(); err != nil {
			s.log.WithError(err).Warn("the last spans or metrics could not be sent by OTLP")
		}
		s.admin.close()

		// Serve of a server with a stream that hangs does not return.
		if !served {
			return
		}
		for range cap(s.ended) {
			<-s.ended //nolint:errcheck // both end because they were closed
		}
	})
}

// stopStreams resets the streams that are left. It reports whether all have ended:
// the process does not wait for those that hang.
func (s *service) stopStreams() bool {
	if within(s.graces.stop, doneOf(s.grpc.Stop)) {
		return true
	}
	s.log.Errorf("requests hang: the process does not wait for them. Please report this, with the log lines of the " +
		"requests before")
	return false
}

// closeFilter closes the filter. Background responses may run until ctx ends.
func (s *service) closeFilter(ctx context.Context) {
	closed := doneOf(func() {
		if err := s.filter.Close(ctx); err != nil {
			s.log.WithError(err).Warn("closing the filter failed")
		}
	})
	select {
	case <-closed:
		return
	case <-ctx.Done():
	}

	// The filter has ended the responses itself, and stores that: a store that hangs must not keep the process.
	if !within(s.graces.close, closed) {
		s.log.Errorf(
			"background responses could not be stored within %s: the process does not wait for them", s.graces.close)
	}
}
