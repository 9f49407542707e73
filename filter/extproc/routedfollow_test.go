package extproc

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

// routedStream is a server whose endpoint, a GET, answers with a stored stream.
func routedStream(stream *scriptedFollower) func(*wiring) {
	return func(w *wiring) {
		routed(w)
		w.endpoints = []api.Endpoint{{API: "test", Method: http.MethodGet, Pattern: "/test", NoModel: true, Handle: func(context.Context, *api.HTTPRequest) api.Outcome {
			return api.Outcome{Stream: stream}
		}}}
	}
}

// get sends a GET.
func (s *scripted) getStream(path string) {
	s.t.Helper()
	s.request(true, ":method=GET", ":path="+path, "x-request-id=abc")
}

const (
	streamHead = "reply headers content-type=text/event-stream"
	fullPiece  = "reply body (62000 bytes)"
)

// A stored stream is read on only when the client has read what was sent before.
func TestRoutedFollower(t *testing.T) {
	t.Parallel()
	stream := &scriptedFollower{{sse: make([]byte, maxPiece)}, {sse: make([]byte, 4*maxPiece)}, {sse: []byte("d"), end: true}}
	script(t, routedStream(stream), func(s *scripted) {
		s.getStream("/test")
		s.expectLike(streamHead, routedHead, fullPiece, fullPiece)
		// Nothing more is read or sent: no comment within an event, either.
		s.wait(time.Hour)
		s.expect()
		if len(*stream) != 1 {
			t.Errorf("%d reads are left", len(*stream))
		}
		s.readAll()
		s.expectLike(fullPiece, fullPiece)
		s.wait(time.Hour)
		s.expect()
		s.readAll()
		s.expectLike(fullPiece, "reply body d", replyEnd)
		s.leave()
	})
}

// A drain does not wait for a client that does not read: it gets whole events and the
// error.
func TestRoutedFollowerDrains(t *testing.T) {
	t.Parallel()
	stream := &scriptedFollower{{sse: make([]byte, 5*maxPiece)}}
	script(t, routedStream(stream), func(s *scripted) {
		s.getStream("/test")
		s.wait(time.Minute)
		before := s.sent()
		s.Drain()
		s.wait(time.Second)
		s.expectLike(fullPiece, fullPiece, fullPiece, "reply body failed", replyEnd)
		if n := strings.Count(strings.Join(before, "\n"), "(62000 bytes)"); n != 2 {
			t.Errorf("%d pieces were sent before: %q", n, before)
		}
		s.leave()
	})
}

// Where Envoy has no route for replies, a stored stream is a local reply.
func TestFollowWithoutRoute(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) {
		routedStream(&scriptedFollower{})(w)
		w.routed = false
	}, func(s *scripted) {
		s.getStream("/test")
		s.expect(localStream)
		s.leave()
	})
}

// A large object is held to the pace of its client, and counts in the budget until it is sent. Where there is no
// room, the client gets an error in its place.
func TestRoutedObject(t *testing.T) {
	t.Parallel()
	object := func(w *wiring) {
		routedStream(nil)(w)
		w.endpoints[0].Handle = func(context.Context, *api.HTTPRequest) api.Outcome {
			return api.Outcome{Answer: make([]byte, largeAnswer+1)}
		}
	}
	script(t, object, func(s *scripted) {
		s.getStream("/test")
		s.expectLike("reply headers content-type=application/json", routedHead, fullPiece, fullPiece)
		s.wait(time.Hour) // without a comment
		s.expect()
		if n := s.budget.held.bytes; n != largeAnswer+1 {
			t.Errorf("%d bytes are held", n)
		}
		s.Drain()
		s.wait(time.Second)
		got := s.sent()
		if last := got[len(got)-1]; last != replyEnd || len(got) != (largeAnswer+1)/maxPiece+1-2+1 {
			t.Errorf("%d lines, the last is %.80q", len(got), last)
		}
		s.leave()
	})
	script(t, object, func(s *scripted) {
		s.budget.held.bytes = s.o.Config.Limits.MaxInflightBytes
		s.getStream("/test")
		s.expectLike("immediate 503")
	})
}

// A follower that has nothing to send ends when the process does.
func TestRoutedFollowerAborts(t *testing.T) {
	t.Parallel()
	script(t, routedStream(&scriptedFollower{{sse: []byte("a")}}), func(s *scripted) {
		s.getStream("/test")
		s.expectLike(streamHead, routedHead, "reply body a")
		s.Abort()
		s.wait(0)
		s.expectLike("reply body failed", replyEnd)
		s.leave()
	})
}

// What is read of the store counts in the budget until it is sent. A read that finds no
// room is repeated, and then the client can resume.
func TestFollowerInTheBudget(t *testing.T) {
	t.Parallel()
	const read = 3*maxPiece + 1
	stream := &scriptedFollower{{sse: make([]byte, read)}, {sse: []byte("b"), end: true}}
	script(t, routedStream(stream), func(s *scripted) {
		held := func(change int64) int64 {
			s.budget.held.mu.Lock()
			defer s.budget.held.mu.Unlock()
			s.budget.held.bytes += change
			return s.budget.held.bytes
		}
		all := s.o.Config.Limits.MaxInflightBytes
		held(all)
		s.getStream("/test")
		s.wait(2 * followRetry)
		s.expectLike(streamHead, "request headers")
		held(-all)
		s.wait(2 * followRetry)
		s.expectLike(fullPiece, fullPiece)
		if n := held(0); n != read {
			t.Errorf("%d bytes are held", n)
		}
		s.readAll()
		s.expectLike(fullPiece, "reply body ", "reply body b", replyEnd)
		if n := held(0); n != 0 {
			t.Errorf("%d bytes are held in the end", n)
		}
		s.leave()
	})
}

// A read that finds no room for long ends the stream. The client can resume it.
func TestFollowerWithoutRoom(t *testing.T) {
	t.Parallel()
	script(t, routedStream(&scriptedFollower{{sse: []byte("a")}}), func(s *scripted) {
		s.budget.held.mu.Lock()
		s.budget.held.bytes = s.o.Config.Limits.MaxInflightBytes
		s.budget.held.mu.Unlock()
		s.getStream("/test")
		s.wait(time.Minute)
		s.expectLike(streamHead, "request headers", "reply body failed", replyEnd)
		s.leave()
		if l := s.lines(t); l[len(l)-1].Get("code").Str != "overloaded" {
			t.Errorf("logged %s", s.testServer.log)
		}
	})
}
