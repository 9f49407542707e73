package filter

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// looks is a follower that gives one thing after the other, and then waits a
// second each time in vain.
type looks []feedEvent

func (l *looks) Next(ctx context.Context) (sse []byte, end bool, err *apierror.Error) {
	if len(*l) == 0 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil, false, nil
	}
	e := (*l)[0]
	*l = (*l)[1:]
	return e.sse, e.end, e.err
}

func (l *looks) Fail(*apierror.Error) []byte { return []byte("failed") }

func TestFeed(t *testing.T) {
	t.Parallel()
	down := apierror.New(http.StatusServiceUnavailable, "store_unavailable", "", "down")
	gone := apierror.New(http.StatusNotFound, "response_not_found", "", "gone")
	for name, c := range map[string]struct {
		looks looks
		drain bool
		text  string
		code  string
	}{
		"to its end":                 {looks: looks{{sse: []byte("a")}, {}, {sse: []byte("b"), end: true}}, text: "ab"},
		"the store is down a while":  {looks: looks{{sse: []byte("a")}, {err: down}, {err: down}, {sse: []byte("b"), end: true}}, text: "ab"},
		"the store stays down":       {looks: looks{{sse: []byte("a")}, {err: down}, {err: down}, {err: down}, {err: down}, {err: down}}, text: "afailed", code: "store_unavailable"},
		"the response is deleted":    {looks: looks{{sse: []byte("a")}, {err: gone}}, text: "afailed", code: "response_not_found"},
		"the service drains":         {looks: looks{{sse: []byte("a")}}, drain: true, text: "afailed", code: "shutdown"},
		"it drains behind the store": {looks: looks{{err: down}, {sse: []byte("a")}}, drain: true, text: "afailed", code: "shutdown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Server{drain: make(chan struct{})}
				events := s.feed(t.Context(), &c.looks)
				if c.drain {
					s.Drain()
					s.Drain()
				}
				var text strings.Builder
				code := ""
				for over := false; !over; {
					e := <-events
					text.Write(e.sse)
					if e.err != nil {
						code = e.err.Code
					}
					over = e.end || e.err != nil
				}
				if text.String() != c.text || code != c.code {
					t.Errorf("%q, error %q", &text, code)
				}
			})
		})
	}
}

// Whoever follows and leaves ends the feed.
func TestFeedIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		(&Server{drain: make(chan struct{})}).feed(ctx, &looks{})
		leave()
		synctest.Wait() // a goroutine that is left behind fails the test
	})
}
