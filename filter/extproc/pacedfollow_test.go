package extproc

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// pacedStream is a server whose endpoint, a GET, answers with a stored stream.
func pacedStream(stream *scriptedFollower) func(*wiring) {
	return func(w *wiring) {
		w.paced = true
		w.endpoints = []api.Endpoint{{API: "test", Method: http.MethodGet, Pattern: "/test", NoModel: true, Handle: func(_ context.Context, r *api.HTTPRequest) api.Outcome {
			if len(r.Body) > 0 {
				return api.Refused(apierror.Invalid("", "The body is %q.", r.Body))
			}
			return api.Streamed(stream)
		}}}
	}
}

// getFilled sends a GET to which Envoy has given a body.
func (s *scripted) getFilled(path string) {
	s.t.Helper()
	s.request(false, ":method=GET", ":path="+path, "x-request-id=abc", header.Filled+"=1")
	s.body("-", true)
}

const (
	pacedFollowHead = "request headers x-harmony-engine=-pacing -content-length"
	pacedStreamHead = "response headers content-type=text/event-stream"
)

// A stored stream is read on only when the client has read what was sent before.
func TestPacedFollower(t *testing.T) {
	t.Parallel()
	const piece = "response body (62000 bytes)"
	stream := &scriptedFollower{{sse: make([]byte, maxPiece)}, {sse: make([]byte, 4*maxPiece)}, {sse: []byte("d"), end: true}}
	script(t, pacedStream(stream), func(s *scripted) {
		s.getFilled("/test")
		s.expectLike(pacedFollowHead, "request body .")
		s.envoyAnswer(false, ":status=200")
		s.expect()
		s.envoyAnswerBody(".", false)
		// The first piece is followed by a mark, and by as much as may be sent before the
		// mark comes back.
		s.expectLike(pacedStreamHead, piece, "request body .", piece, piece)
		// Nothing more is read or sent: no comment within an event, either.
		s.wait(time.Hour)
		s.expect()
		if len(*stream) != 1 {
			t.Errorf("%d reads are left", len(*stream))
		}
		s.envoyAnswerBody(".", false)
		s.expectLike("request body .", piece, piece)
		s.wait(time.Hour)
		s.expect()
		s.envoyAnswerBody(".", false)
		s.expect("request body .", "response body d END")
		s.leave()
	})
}

// A drain does not wait for a client that does not read: it gets whole events and the
// error.
func TestPacedFollowerDrains(t *testing.T) {
	t.Parallel()
	stream := &scriptedFollower{{sse: make([]byte, 5*maxPiece)}}
	script(t, pacedStream(stream), func(s *scripted) {
		s.getFilled("/test")
		s.envoyAnswer(false, ":status=200")
		s.envoyAnswerBody(".", false)
		s.wait(time.Minute)
		before := s.sent()
		s.Drain()
		s.wait(time.Second)
		s.expectLike("response body (62000 bytes)", "response body (62000 bytes)", "response body failed END")
		if n := strings.Count(strings.Join(before, "\n"), "(62000 bytes)"); n != 3 {
			t.Errorf("%d pieces were sent before: %q", n, before)
		}
		s.leave()
	})
}

// The reply to a GET is not paced unless Envoy has given it a body.
func TestFollowWithoutABody(t *testing.T) {
	t.Parallel()
	script(t, pacedStream(&scriptedFollower{}), func(s *scripted) {
		s.request(true, ":method=GET", ":path=/test", "x-request-id=abc")
		s.expect(localStream)
		s.leave()
	})
}

// pacedObject is a server whose endpoint, a GET, answers with an object of a size.
func pacedObject(size int) func(*wiring) {
	return func(w *wiring) {
		pacedStream(nil)(w)
		w.endpoints[0].Handle = func(context.Context, *api.HTTPRequest) api.Outcome {
			return api.Answered(make([]byte, size), nil)
		}
	}
}

// A large object is paced, and counts in the budget until it is sent. Where there is no
// room, the client gets an error in its place.
func TestPacedObject(t *testing.T) {
	t.Parallel()
	const piece = "response body (62000 bytes)"
	object := pacedObject(largeAnswer + 1)
	script(t, object, func(s *scripted) {
		s.getFilled("/test")
		s.expectLike(pacedFollowHead, "request body .")
		s.envoyAnswer(false, ":status=200")
		s.envoyAnswerBody(".", false)
		s.expectLike("response headers content-type=application/json", piece, "request body .", piece, piece)
		s.wait(time.Hour) // without a comment
		s.expect()
		if n := s.memory.held.bytes; n != largeAnswer+1 {
			t.Errorf("%d bytes are held", n)
		}
		s.Drain()
		s.wait(time.Second)
		got := s.sent()
		if last := got[len(got)-1]; !strings.HasSuffix(last, " END") || len(got) != (largeAnswer+1)/maxPiece+1-3 {
			t.Errorf("%d pieces, the last is %.80q", len(got), last)
		}
		s.leave()
	})
	script(t, object, func(s *scripted) {
		s.memory.held.bytes = s.o.Config.Limits.MaxInflightBytes
		s.getFilled("/test")
		s.expectLike("immediate 503")
	})
}

// What waits for the service of marks ends: when it does not answer, and when the
// process ends.
func TestPacedFollowerWithoutMarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(*scripted)
		want string
	}{
		"no answer":    {func(s *scripted) { s.wait(time.Minute) }, "immediate 503"},
		"an error":     {func(s *scripted) { s.envoyAnswer(false, ":status=502") }, "immediate 502"},
		"the shutdown": {func(s *scripted) { s.Abort(); s.wait(0) }, "immediate 503 retry-after=1 The service was shut down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, pacedStream(&scriptedFollower{}), func(s *scripted) {
				s.getFilled("/test")
				s.expectLike(pacedFollowHead, "request body .")
				c.then(s)
				s.expectLike(c.want)
				s.leave()
			})
		})
	}
}

// The body that Envoy has given to a GET goes no further.
func TestFilledRequestPassesThrough(t *testing.T) {
	t.Parallel()
	const head = "request headers content-length=0 -" + header.Filled
	t.Run("not the filter's", func(t *testing.T) {
		t.Parallel()
		script(t, nil, func(s *scripted) {
			s.getFilled("/v1/files?stream=true")
			s.expect(head, "request body  END")
		})
	})
	t.Run("not stored here", func(t *testing.T) {
		t.Parallel()
		script(t, func(w *wiring) {
			pacedStream(nil)(w)
			w.cfg.Responses.RelayUnknown = true
			w.endpoints[0].Handle = func(context.Context, *api.HTTPRequest) api.Outcome {
				return api.Elsewhere(apierror.New(http.StatusNotFound, "", "", "It is not stored here."))
			}
		}, func(s *scripted) {
			s.getFilled("/test")
			s.expect(head, "request body  END")
		})
	})
}

// What is read of the store counts in the budget until it is sent. A read that finds no
// room is repeated, and then the client can resume.
func TestFollowerInTheBudget(t *testing.T) {
	t.Parallel()
	const read = 3*maxPiece + 1
	stream := &scriptedFollower{{sse: make([]byte, read)}, {sse: []byte("b"), end: true}}
	script(t, pacedStream(stream), func(s *scripted) {
		held := func(change int64) int64 {
			s.memory.held.mu.Lock()
			defer s.memory.held.mu.Unlock()
			s.memory.held.bytes += change
			return s.memory.held.bytes
		}
		all := s.o.Config.Limits.MaxInflightBytes
		held(all)
		s.getFilled("/test")
		s.envoyAnswer(false, ":status=200")
		s.envoyAnswerBody(".", false)
		s.wait(2 * followRetry)
		s.expectLike("request headers", "request body .", pacedStreamHead)
		held(-all)
		s.wait(2 * followRetry)
		s.expectLike("response body (62000 bytes)", "request body .", "response body (62000 bytes)", "response body (62000 bytes)")
		if n := held(0); n != read {
			t.Errorf("%d bytes are held", n)
		}
		s.envoyAnswerBody(".", false)
		s.expectLike("request body .", "response body", "response body b")
		if n := held(0); n != 0 {
			t.Errorf("%d bytes are held in the end", n)
		}
		s.leave()
	})
}

// A read that finds no room for long ends the stream. The client can resume it.
func TestFollowerWithoutRoom(t *testing.T) {
	t.Parallel()
	script(t, pacedStream(&scriptedFollower{{sse: []byte("a")}}), func(s *scripted) {
		s.memory.held.mu.Lock()
		s.memory.held.bytes = s.o.Config.Limits.MaxInflightBytes
		s.memory.held.mu.Unlock()
		s.getFilled("/test")
		s.envoyAnswer(false, ":status=200")
		s.envoyAnswerBody(".", false)
		s.wait(time.Minute)
		s.expectLike("request headers", "request body .", pacedStreamHead, "response body failed END")
		s.leave()
		if l := s.lines(t); l[len(l)-1].Get("code").Str != "overloaded" {
			t.Errorf("logged %s", s.testServer.log)
		}
	})
}

// A stored answer that its client does not read ends when others need the room. The client
// has a part of an event or of an object, so that its stream is reset.
func TestUnreadStreamMakesRoom(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*wiring){
		"a stream":  pacedStream(&scriptedFollower{{sse: make([]byte, 5*maxPiece)}, {end: true}}),
		"an object": pacedObject(4 * largeAnswer),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, answer, func(s *scripted) {
				s.getFilled("/test")
				s.envoyAnswer(false, ":status=200")
				s.envoyAnswerBody(".", false)
				s.sent()
				s.wait(slack + time.Second)
				unread := s.fakeEnvoy
				s.begin()
				other := s.memory.open("", nil)
				if err := other.take(s.memory.limit - s.memory.small); err != nil {
					t.Fatal(err)
				}
				s.wait(0)
				select {
				case <-unread.ended:
					if status.Code(unread.err) != codes.ResourceExhausted {
						t.Errorf("the stream ends with %v", unread.err)
					}
				default:
					t.Error("the stream goes on")
					unread.leave()
				}
				other.close()
			})
		})
	}
}
