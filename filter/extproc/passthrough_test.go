package extproc

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

func TestOthersPassThrough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fields []string
	}{
		{"path", []string{":method=POST", ":path=/v1/embeddings", "content-type=application/json"}},
		{"method", []string{":method=PUT", ":path=/v1/embeddings", "content-type=application/json"}},
		{"a browser's question", []string{":method=OPTIONS", ":path=/v1/chat/completions", "content-type=application/json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				s.request(false, c.fields...)
				s.expect("request headers")
				s.body("one", false)
				s.body("two", true)
				s.expect("request body one", "request body two END")
				s.envoyAnswer(false, ":status=500")
				s.envoyAnswerBody("three", false)
				s.envoyAnswerBody("", true)
				s.expect("response headers", "response body three", "response body  END")
			})
		})
	}
}

func TestGetPassesThrough(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.request(true, ":method=GET", ":path=/v1/models")
		s.envoyAnswer(true, ":status=204")
		s.expect("request headers", "response headers")
		s.leave()
		if n := s.counted(t, "harmony_passthrough_total", ""); n != 1 {
			t.Errorf("counted %v times", n)
		}
	})
}

func TestLargePiecesAreSplit(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.request(false, ":method=POST", ":path=/upload")
		s.sent()
		s.body(strings.Repeat("x", 2*maxPiece+1), true)
		s.expect("request body (62000 bytes)", "request body (62000 bytes)", "request body x END")
	})
}

func TestTrailersPassThrough(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.request(false, ":method=POST", ":path=/grpc.Service/Call")
		s.body("a", false)
		s.trailers()
		s.envoyAnswer(false, ":status=200")
		s.envoyAnswerTrailers()
		s.expect("request headers", "request body a", "request trailers", "response headers", "response trailers -")
	})
}

// A request for another model passes through as soon as the model is known.
func TestOtherModelPassesThrough(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post()
		s.body(`{"messages":[`, false)
		s.expect()
		s.body(`],"model":"llama",`, false)
		s.expect("request headers", `request body {"messages":[`, `request body ],"model":"llama",`)
		s.body(`"stream":true}`, true)
		s.expect(`request body "stream":true} END`)
		s.envoyAnswer(false, ":status=200", sse)
		s.envoyAnswerBody("data: x", false)
		s.expect("response headers", "response body data: x")
	})
}

func TestLargeBodyForAnotherModel(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.cfg.Limits.MaxBodyBytes = 100 }, func(s *scripted) {
		s.post("content-length=10000")
		s.body(`{"model":"llama","x":"aaa`, false)
		s.expect("request headers", `request body {"model":"llama","x":"aaa`)
		for range 50 {
			s.body(strings.Repeat("a", 100), false)
		}
		if n := len(s.sent()); n != 50 {
			t.Errorf("%d pieces passed through, want 50", n)
		}
	})
}

func TestGzipForAnotherModel(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post("content-encoding=gzip")
		body := gzipped(`{"model":"llama"}`)
		s.body(body, true)
		s.expect("request headers", "request body "+body+" END")
	})
}

func TestEnvoysReplyBeforeTheRequestPassesThrough(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.envoyAnswer(false, ":status=429", "content-type=text/plain")
		s.envoyAnswerBody("local rate limit", true)
		s.expect("response headers", "response body local rate limit END")
	})
}

// Headers that only the filter may set are removed from every request: no client
// chooses an engine or its replica.
func TestForgedHeadersAreRemoved(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		header.Engine:       "request headers -x-harmony-engine reroute",
		header.Destination:  "request headers -" + header.Destination,
		header.Upstream:     "request headers -" + header.Upstream,
		header.Prefill:      "request headers -" + header.Prefill,
		header.Override:     "request headers -" + header.Override,
		header.Codex:        "request headers -" + header.Codex,
		"x-harmony-prefix":  "request headers -x-harmony-prefix",
		"x-harmony-session": "request headers -x-harmony-session",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				s.request(false, ":method=POST", ":path=/v1/completions", name+"=forged")
				s.expect(want)
				s.next()
				s.post(name + "=forged")
				s.body(ask(""), true)
				s.toEngine()
				if got := s.call.header.Get(name); got == "forged" {
					t.Errorf("a model call has %s: %s", name, got)
				}
			})
			script(t, direct, func(s *scripted) {
				s.post(name + "=forged")
				s.body(ask(""), true)
				if sent := s.sent()[0]; strings.Contains(sent, "forged") || name != header.Engine && !strings.Contains(sent, " -"+name) && !strings.Contains(sent, " "+name+"=") {
					t.Errorf("of a request of ours: %s", sent)
				}
			})
		})
	}
}

func TestOverrideHeader(t *testing.T) {
	t.Parallel()
	allowed := func(w *wiring) { w.cfg.AllowOverride = true }
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		script(t, allowed, func(s *scripted) {
			s.post("x-envoy-harmony=off")
			s.expect("request headers -x-envoy-harmony")
		})
	})
	t.Run("on", func(t *testing.T) {
		t.Parallel()
		script(t, allowed, func(s *scripted) {
			s.post("x-envoy-harmony=on")
			s.body(`{"model":"llama","messages":[{"role":"user","content":"Hi"}]}`, true)
			s.toEngine()
		})
	})
	t.Run("not allowed", func(t *testing.T) {
		t.Parallel()
		script(t, nil, func(s *scripted) {
			s.post("x-envoy-harmony=off")
			s.expect()
		})
	})
}
