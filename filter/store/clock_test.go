package store_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// The clock of a store is set anew by a day. Both kinds of store that count with the
// process's clock behave the same.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, url := range []string{"memory:", "sqlite:"} {
		for name, c := range map[string]struct {
			by           time.Duration
			ttl          time.Duration
			gone, lapsed bool // after the jump
		}{
			"forward past a TTL":         {by: day, ttl: time.Hour, gone: true},
			"forward within a TTL":       {by: day, ttl: 3 * day, lapsed: true},
			"back, with a short TTL":     {by: -day, ttl: time.Hour},
			"back, with a TTL of 3 days": {by: -day, ttl: 3 * day},
		} {
			t.Run(url+name, func(t *testing.T) {
				t.Parallel()
				clock := newFakeClock()
				o := testOptions
				o.Now, o.ResponseTTL = clock.now, c.ttl
				where := url
				if url == "sqlite:" {
					where += filepath.Join(t.TempDir(), "store.db")
				}
				s := openURL(t, where, o)
				r := live("r", 1)
				r.Lease = 15 * time.Second
				if err := s.Put(t.Context(), "a", r); err != nil {
					t.Fatal(err)
				}
				clock.advance(c.by)
				got, err := s.Get(t.Context(), "a", "r")
				if c.gone {
					if !errors.Is(err, store.ErrNotFound) {
						t.Errorf("Get after the TTL: %v", err)
					}
					return
				}
				if err != nil || got.Lapsed != c.lapsed {
					t.Fatalf("Get: %+v, %v, want lapsed %v", got, err, c.lapsed)
				}
				// The next renewal counts from the new time, however the clock was set.
				if lost, err := s.Renew(t.Context(), "me", []store.Key{{Tenant: "a", ID: "r"}}, 15*time.Second); err != nil || len(lost) > 0 {
					t.Fatalf("Renew: %v, %v", lost, err)
				}
				for _, step := range []struct {
					after  time.Duration
					lapsed bool
				}{{14 * time.Second, false}, {2 * time.Second, true}} {
					clock.advance(step.after)
					if got, err := s.Get(t.Context(), "a", "r"); err != nil || got.Lapsed != step.lapsed {
						t.Errorf("after the renewal: %+v, %v, want lapsed %v", got, err, step.lapsed)
					}
				}
			})
		}
	}
}
