package extproc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/h2"
)

// fakeReply is a routed reply as Envoy takes it. It writes lines to the script's log.
type fakeReply struct {
	e    *fakeEnvoy
	bell func()

	mu     sync.Mutex
	unread int // bytes that the client has not read
	ended  bool
}

// replyAhead is how many bytes the client may be behind with.
const replyAhead = 64 << 10

func (r *fakeReply) Key() string { return "key" }

func (r *fakeReply) note(format string, args ...any) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.e.log = append(r.e.log, "reply "+fmt.Sprintf(format, args...))
}

func (r *fakeReply) Begin(fields []h2.Field) {
	var all strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&all, " %s=%s", f.Name, f.Value)
	}
	r.note("headers%s", all.String())
}

func (r *fakeReply) Write(p []byte) {
	if len(p) > 40000 {
		r.note("body (%d bytes)", len(p))
	} else {
		r.note("body %s", p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread += len(p)
}

func (r *fakeReply) End(trailer h2.Field) {
	r.note("end %s=%s", trailer.Name, trailer.Value)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

func (r *fakeReply) Behind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unread >= replyAhead
}

func (r *fakeReply) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.ended = true
		r.note("broken off")
	}
}

// read lets the client read all that it was sent.
func (s *scripted) readAll() {
	r := s.fakeEnvoy.reply
	r.mu.Lock()
	behind := r.unread >= replyAhead
	r.unread = 0
	r.mu.Unlock()
	if behind {
		r.bell()
	}
	synctest.Wait()
}

// routed is a server whose Envoy has the route for replies, and no engine.
func routed(w *wiring) { w.cfg.Loopback, w.routed = "unix:///nowhere", true }

const (
	routedHead = "request headers x-harmony-engine=-reply x-harmony-reply=key -content-length"
	replyEnd   = "reply end x-harmony-reply-end=1"
)

// A streamed reply is the answer to the client's request. Before its headers, an error
// is an immediate response.
func TestRoutedReply(t *testing.T) {
	t.Parallel()
	t.Run("the call fails", func(t *testing.T) {
		t.Parallel()
		script(t, routed, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(routedHead, "request body  END", "immediate 502")
			s.leave()
			s.expect("reply broken off")
		})
	})
	t.Run("the request has trailers", func(t *testing.T) {
		t.Parallel()
		script(t, routed, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), false)
			s.trailers()
			s.expectLike(routedHead, "request trailers", "immediate 502")
		})
	})
	t.Run("bodies come on demand", func(t *testing.T) {
		t.Parallel()
		script(t, routed, func(s *scripted) {
			s.onDemand(false, chatHeaders...)
			s.expect("mode" + requestOnly)
			s.body(ask(`,"stream":true`), true)
			s.expectLike(routedHead, "request body  END", "immediate 502")
		})
	})
	t.Run("the reply is one object", func(t *testing.T) {
		t.Parallel()
		script(t, routed, func(s *scripted) {
			s.post()
			s.body(ask(""), true)
			s.expectLike("immediate 502")
		})
	})
}

// Envoy asks for the headers of a reply before it sends them, and for its trailers, with
// which it gets the last metadata.
func TestRoutedReplyThroughEnvoy(t *testing.T) {
	t.Parallel()
	stream := &scriptedFollower{{sse: []byte("a")}, {sse: []byte("b"), end: true}}
	script(t, routedStream(stream), func(s *scripted) {
		s.getStream("/test")
		s.expectLike("reply headers content-type=text/event-stream", routedHead, "reply body a", "reply body b", replyEnd)
		s.answer(false, ":status=200")
		s.expect("response headers")
		s.answerTrailers()
		s.expect("response trailers -x-harmony-reply-end")
		s.leave()
		s.expect() // it is complete
	})
}

// Envoy answers by itself where it cannot reach the server of replies.
func TestRoutedReplyWithoutServer(t *testing.T) {
	t.Parallel()
	script(t, routedStream(&scriptedFollower{}), func(s *scripted) {
		s.getStream("/test")
		s.expectLike("reply headers", routedHead)
		s.answer(false, ":status=503")
		s.expectLike("immediate 503")
		s.leave()
		s.expect("reply broken off")
	})
}

// An Envoy that shows bodies of replies gets them back as they are.
func TestRoutedReplyWithBodies(t *testing.T) {
	t.Parallel()
	script(t, routedStream(&scriptedFollower{{sse: []byte("a")}}), func(s *scripted) {
		s.getStream("/test")
		s.answer(false, ":status=200")
		s.sent()
		s.answerBody("a", false)
		s.expect("response body a")
		s.leave()
	})
}

// While the client is behind, events of the model call wait.
func TestRoutedReplyHolds(t *testing.T) {
	t.Parallel()
	script(t, routed, func(s *scripted) {
		x := newExchange(s.ctx, s.Server, time.Now())
		x.phase, x.headersSent = phaseRun, true
		x.beginReply()
		for range 2 {
			x.SendBody(make([]byte, replyAhead-1), false)
			if behind(x.reply) {
				t.Error("behind too early")
			}
			x.SendBody([]byte("x"), false)
			if !behind(x.reply) {
				t.Error("not behind")
			}
			s.fakeEnvoy.reply.unread = 0
			if _, err := x.Handle(incoming{caughtUp: true}); err != nil || behind(x.reply) {
				t.Errorf("still behind, %v", err)
			}
		}
	})
}
