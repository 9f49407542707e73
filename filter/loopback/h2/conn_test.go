package h2

import (
	"testing"
	"time"
)

// A connection is read at ticks while frames come more often than these, and else when
// bytes arrive.
func TestModeration(t *testing.T) {
	t.Parallel()
	const tick = 2 * time.Millisecond
	start := time.Unix(1000, 0) // a tick
	for _, tt := range []struct {
		name   string
		tick   time.Duration
		frames []int // read by the end of each window
		want   time.Duration
	}{
		{"nothing", tick, []int{0}, 0},
		{"few", tick, []int{4*minFrames - 1}, 0},
		{"busy", tick, []int{4 * minFrames}, tick / 2},
		{"busy, then few", tick, []int{100, 0}, 0},
		{"few, then busy", tick, []int{0, 100}, tick}, // at a tick,
		{"no ticks", 0, []int{100}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, now, got := moderation{tick: tt.tick, since: start}, start, time.Duration(0)
			for _, n := range tt.frames {
				m.frames += n
				now = now.Add(4 * tick)
				m.next(now)
				now = now.Add(tick / 2)
				got = m.next(now)
			}
			if got != tt.want {
				t.Errorf("waits %v, want %v", got, tt.want)
			}
		})
	}
}
