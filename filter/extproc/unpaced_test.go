package extproc

import (
	"strings"
	"testing"
	"testing/synctest"

	grpcmetadata "google.golang.org/grpc/metadata"
)

// TestWarnsOfUnpacedReplies shows that the log says once, and no more, that Envoy cannot be
// held back: nothing else shows it until Envoy's memory is full.
func TestWarnsOfUnpacedReplies(t *testing.T) {
	t.Parallel()
	const route, filler = "Replies are not paced", "What is stored is not paced"
	warnings := func(s *scripted, want ...string) {
		t.Helper()
		synctest.Wait()
		var got []string
		for _, l := range s.lines(t) {
			if text := l.Get("msg").Str; l.Get("level").Str == "warning" && strings.Contains(text, "not paced") {
				got = append(got, text)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("the log warns %q, want %q", got, want)
		}
		for i, text := range got {
			if !strings.HasPrefix(text, want[i]) {
				t.Errorf("the log warns %q, want %q", text, want[i])
			}
		}
	}
	ofEnvoy := func(w *wiring) { w.stream = grpcmetadata.Pairs(":authority", "envoy_harmony") }

	t.Run("Envoy has no pacing route", func(t *testing.T) {
		t.Parallel()
		script(t, ofEnvoy, func(s *scripted) {
			s.post()
			s.body(ask(""), true)
			warnings(s) // A whole object cannot be paced.

			for range 2 {
				s.next()
				s.post()
				s.body(ask(`,"stream":true`), true)
				warnings(s, route)
			}
		})
	})
	t.Run("of another configuration of the same process", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, nil)
		if next := s.With(s.o); next.unpaced != s.unpaced {
			t.Error("a reload warns again")
		}
		s.close()
	})
	t.Run("GETs have no body", func(t *testing.T) {
		t.Parallel()
		script(t, pacedStream(&scriptedFollower{}), func(s *scripted) {
			for range 2 {
				s.request(true, ":method=GET", ":path=/test", "x-request-id=abc")
				s.expect(localStream)
				warnings(s, filler)
				s.next()
			}
		})
	})
	t.Run("all is there", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			warnings(s)
		})
	})
	t.Run("there is no loopback listener", func(t *testing.T) {
		t.Parallel()
		script(t, func(w *wiring) { ofEnvoy(w); w.direct = true }, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			warnings(s) // The engine's reply is Envoy's, which holds it back by itself.
		})
	})
	t.Run("no Envoy, but a socket", func(t *testing.T) {
		t.Parallel()
		script(t, nil, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			warnings(s)
		})
	})
	t.Run("an engine waits for more", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.wait(handleTimeout)
			s.expectLike("immediate 503")
			s.leave()
			lines := s.lines(t)
			if cause := lines[len(lines)-1].Get("cause").Str; !strings.Contains(cause, "no route for pacing stands before the others") {
				t.Errorf("the log has the cause %q", cause)
			}
		})
	})
	t.Run("a rate limit has answered", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.envoyAnswer(false, ":status=429")
			s.expectLike("immediate 429")
		})
	})
	t.Run("the route is not there", func(t *testing.T) {
		t.Parallel()
		script(t, pacedServer, func(s *scripted) {
			s.post()
			s.body(ask(`,"stream":true`), true)
			s.expectLike(pacedHead, "request body .")
			s.envoyAnswer(false, ":status=400")
			s.expectLike("immediate 502")
			s.leave()
			lines := s.lines(t)
			if cause := lines[len(lines)-1].Get("cause").Str; !strings.Contains(cause, "no route for pacing stands before the others") {
				t.Errorf("the log has the cause %q", cause)
			}
		})
	})
}
