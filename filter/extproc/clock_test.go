package extproc

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// jumpedClock is the clock of a machine that is set anew: time.Now with another
// wall clock and the same monotonic one.
type jumpedClock struct{ by atomic.Int64 } // seconds

// now is the time on that clock. Package time offers no way to make such a value. Its
// first word has the seconds of the wall clock above 30 bits of nanoseconds, if the
// highest bit says that there is a monotonic reading.
func (c *jumpedClock) now() time.Time {
	now := time.Now()
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(c.by.Load()) << 30 //nolint:gosec // also back
	return now
}

func TestJumpedClock(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		c := &jumpedClock{}
		before := c.now()
		c.by.Store(int64(by / time.Second))
		after := c.now()
		if wall := after.Round(0).Sub(before.Round(0)); wall < by || wall > by+time.Minute {
			t.Fatalf("the wall clock has jumped by %s, want %s", wall, by)
		}
		if mono := after.Sub(before); mono < 0 || mono > time.Minute {
			t.Fatalf("the monotonic clock has jumped by %s", mono)
		}
	}
}

// A wall clock that is set anew while a reply is made, by a day in either direction,
// moves no deadline: they are counted by the monotonic clock. The clock of a bubble
// has no monotonic reading, so this test speaks gRPC.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		by   time.Duration
		idle time.Duration // the engine's deadline
		want string        // what the client gets after the jump
	}{
		{"forward, and no deadline has come", 24 * time.Hour, time.Hour, "World"},
		{"back, and a deadline comes", -24 * time.Hour, 200 * time.Millisecond, "The engine was silent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(w *wiring) {
				w.cfg.Limits.IdleTimeout.Duration = c.idle
			})
			clock := &jumpedClock{}
			s.o.Env.Now = clock.now
			conn := connect(t, s)
			conn.post(ask(`,"stream":true`), true)
			call := s.loopback.await()
			call.send(run.Answered(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}}, nil))
			call.send(run.Bytes([]byte(event("", tokens("<|channel|>final<|message|>Hello")...))))
			conn.await("Hello")
			clock.by.Store(int64(c.by / time.Second))
			if c.by > 0 {
				call.send(run.Bytes([]byte(event("stop", tokens("World<|return|>")...) + usageEvent + doneEvent)))
				call.send(run.Ended(nil))
			}
			if got := conn.await(c.want); strings.Contains(got, "silent") != (c.by < 0) {
				t.Errorf("after the jump the client has got %q", got)
			}
			conn.stop()
			lines := s.lines(t)
			if took := lines[len(lines)-1].Get("seconds").Float(); took < 0 || took > time.Hour.Seconds() {
				t.Errorf("the log says that it took %v s", took)
			}
		})
	}
}

// await receives messages until one has a text.
func (c *connection) await(text string) string {
	c.t.Helper()
	for {
		m, err := c.Recv()
		if err != nil {
			c.t.Fatalf("%v, and no %q", err, text)
		}
		if got := line(m); strings.Contains(got, text) || strings.Contains(got, `"error"`) {
			return got
		}
	}
}
