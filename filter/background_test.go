package filter

import (
	"testing"
)

// A place is taken before a response is queued, so no more are made at a time
// than may be.
func TestBackgroundPlaces(t *testing.T) {
	t.Parallel()
	s := newScript(t, func(c *Config) { c.Limits.MaxBackground = 2 })
	b := s.x.s.background
	for i, want := range []int{0, 0, 503, 503} {
		status := 0
		if err := b.admit(); err != nil {
			status = err.Status
		}
		if status != want {
			t.Errorf("admit %d: status %d, want %d", i, status, want)
		}
	}
	b.leave()
	if err := b.admit(); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	off := newScript(t, func(c *Config) { c.Limits.MaxBackground = 0 })
	if err := off.x.s.background.admit(); err == nil || err.Status != 400 {
		t.Errorf("switched off: %v", err)
	}
}
