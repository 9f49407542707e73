package extproc

import (
	"slices"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
)

// pacedServer is a server whose Envoy has the pacing route.
func pacedServer(w *wiring) { w.paced = true }

const pacedHead = "request headers x-harmony-engine=-pacing -content-length"

// A streamed reply begins when the request for marks is answered. Its errors are those
// of any reply.
func TestPacedReply(t *testing.T) {
	t.Parallel()
	t.Run("the reply begins", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.envoyAnswer(false, ":status=200")
			s.expect() // Envoy takes no body before the service's has begun
			s.envoyAnswerBody(".", false)
			s.toEngine()
			s.loses()
			s.called()
			s.loses()
			s.expectLike("immediate 502")
		})
	})
	t.Run("the service for marks is not there", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.envoyAnswer(false, ":status=503")
			s.expectLike("immediate 503")
		})
	})
	t.Run("the service does not answer", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.wait(handleTimeout)
			s.expectLike("immediate 503")
		})
	})
	t.Run("the client leaves before", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.leave()
			if n := s.counted(t, "harmony_requests_total", "api=chat model=other outcome=canceled"); n != 1 {
				t.Errorf("counted %v times", n)
			}
		})
	})
	t.Run("bodies come on demand", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.onDemand(false, chatHeaders...)
			s.expect("mode" + bothWays)
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
		})
	})
	t.Run("the reply is one object", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(""), true)
			s.toEngine()
		})
	})
}

// A mark follows each markEvery bytes, one at a time. Beyond paceAhead bytes after it
// the model call waits until it comes back.
func TestMarks(t *testing.T) {
	t.Parallel()
	x := newStepped(t.Context(), newServer(t, pacedServer).Server)
	x.phase, x.pace.phase, x.headersSent = phaseRun, paceOpen, true
	send := func(n, marks int, behind bool) {
		t.Helper()
		x.to.reset()
		x.SendBody([]byte(strings.Repeat("x", n)), false)
		checkMarks(t, x, marks, behind)
	}
	back := func(n int, end bool, marks int, behind bool) {
		t.Helper()
		x.to.reset()
		x.responseBody(&extprocv3.HttpBody{Body: make([]byte, n), EndOfStream: end})
		checkMarks(t, x, marks, behind)
	}
	send(markEvery-1, 0, false)
	send(1, 1, false)
	send(paceAhead-1, 0, false)
	send(1, 0, true)
	back(0, false, 0, true)
	back(1, false, 1, false) // the next one is due already
	back(1, false, 0, false)
	send(markEvery+paceAhead, 1, false)
	send(paceAhead, 0, true)
	back(0, true, 0, false) // no marks any more
	send(10*paceAhead, 0, false)
}

func checkMarks(t *testing.T, x *exchange, marks int, behind bool) {
	t.Helper()
	var got []string
	for _, m := range x.to.out {
		got = append(got, line(m))
	}
	got = slices.DeleteFunc(got, func(l string) bool { return strings.HasPrefix(l, "response body") })
	if diff := cmp.Diff(slices.Repeat([]string{"request body ."}, marks), got, cmp.Transformer("len", func(s []string) string { return strings.Join(s, "\n") })); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	if x.pace.behind() != behind {
		t.Errorf("behind: %t", !behind)
	}
}
