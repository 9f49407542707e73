package extproc

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// scriptedFollower returns one thing after the other, and nothing after that: it
// waits a second each time.
type scriptedFollower []storedEvents

func (f *scriptedFollower) Next(ctx context.Context, reserve func(int) *apierror.Error) (sse []byte, end bool, err *apierror.Error) {
	if len(*f) == 0 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil, false, nil
	}
	e := (*f)[0]
	if err := reserve(len(e.sse)); err != nil {
		return nil, false, err
	}
	*f = (*f)[1:]
	return e.sse, e.end, e.err
}

func (f *scriptedFollower) Fail(*apierror.Error) []byte { return []byte("failed") }

func TestFollow(t *testing.T) {
	t.Parallel()
	down := apierror.New(http.StatusServiceUnavailable, "store_unavailable", "", "down")
	gone := apierror.New(http.StatusNotFound, "response_not_found", "", "gone")
	for name, c := range map[string]struct {
		stream scriptedFollower
		drain  bool
		text   string
		code   string
	}{
		"to its end":                       {stream: scriptedFollower{{sse: []byte("a")}, {}, {sse: []byte("b"), end: true}}, text: "ab"},
		"the store is down for a while":    {stream: scriptedFollower{{sse: []byte("a")}, {err: down}, {err: down}, {sse: []byte("b"), end: true}}, text: "ab"},
		"the store stays down":             {stream: scriptedFollower{{sse: []byte("a")}, {err: down}, {err: down}, {err: down}, {err: down}, {err: down}}, text: "afailed", code: "store_unavailable"},
		"the response is deleted":          {stream: scriptedFollower{{sse: []byte("a")}, {err: gone}}, text: "afailed", code: "response_not_found"},
		"the server drains":                {stream: scriptedFollower{{sse: []byte("a")}}, drain: true, text: "afailed", code: "shutdown"},
		"the server drains, store is down": {stream: scriptedFollower{{err: down}, {sse: []byte("a")}}, drain: true, text: "failed", code: "shutdown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Server{drain: newDrain()}
				if c.drain {
					s.Drain()
					s.Drain()
				}
				var text strings.Builder
				code := ""
				b := newMemoryBudget(&config.Limits{MaxInflightBytes: 1 << 20}, time.Now, newHoldings())
				f := newFollowed(&c.stream, b.open("", nil))
				s.follow(t.Context(), f, func(e storedEvents) bool {
					f.waits = true
					f.goOn()
					text.Write(e.sse)
					if e.err != nil {
						code = e.err.Code
					}
					return true
				})
				if text.String() != c.text || code != c.code {
					t.Errorf("%q, error %q", &text, code)
				}
			})
		})
	}
}

// A client that follows a stored stream gets it as it grows, with comments in
// between, until one of the two ends.
func TestFollowedStream(t *testing.T) {
	t.Parallel()
	stream := &scriptedFollower{{sse: []byte("a")}}
	script(t, endpointOf(func(context.Context) api.Outcome { return api.Streamed(stream) }), func(s *scripted) {
		s.postTest()
		s.expect(localStream, "local body a")
		s.wait(16 * time.Second)
		s.expect("local body : keep-alive\n")
		s.Drain()
		s.wait(time.Second)
		s.expect("local body failed END")
		s.wait(time.Hour)
		s.expect()
		if n := s.counted(t, "harmony_streams_inflight", ""); n != 1 {
			t.Errorf("%v streams are served", n)
		}
		s.leave()
		if l := s.lines(t); len(l) != 1 || l[0].Get("code").Str != "shutdown" || l[0].Get("outcome").Str != "drain" {
			t.Errorf("logged %s", s.testServer.log)
		}
	})
}

// A client that leaves ends the reading of its stream.
func TestFollowerLeaves(t *testing.T) {
	t.Parallel()
	script(t, endpointOf(func(context.Context) api.Outcome { return api.Streamed(&scriptedFollower{}) }), func(s *scripted) {
		s.postTest()
		s.expect(localStream)
		s.leave() // a goroutine that is left behind deadlocks the bubble
		if err := s.result(); err != nil {
			t.Errorf("the stream ends with %v", err)
		}
	})
}
