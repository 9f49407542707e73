package extproc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func TestStream(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.posted(`,"stream":true`)
		s.answer(false, ":status=200", sse)
		s.expect()
		s.answerBody(event("", tokens("<|channel|>analysis<|message|>Hm")...), false)
		s.expectLike(localStream, `local body data: {`)
		e := event("", tokens("<|end|><|start|>assistant<|channel|>final<|message|>Hello")...)
		s.answerBody(e[:30], false)
		s.expect()
		s.answerBody(e[30:], false)
		got := s.expectLike("local body data: {")
		if !strings.Contains(got[0], `"content":"Hello"`) {
			t.Errorf("no content in %s", got[0])
		}
		s.answerBody(event("stop", harmony.TokenReturn)+usageEvent+doneEvent, true)
		got = s.expectLike("local body data: {", "local body data: [DONE]")
		if !strings.HasSuffix(got[1], "data: [DONE]\n\n END") || !strings.Contains(got[0], `"finish_reason":"stop"`) {
			t.Errorf("not the end of a stream: %s", got[0])
		}
		s.answerBody("late", true)
		s.expect()
	})
}

func TestWholeReply(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.posted("")
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.expect()
		s.answerBody(event("stop", harmony.TokenReturn)+usageEvent+doneEvent, false)
		s.expect()
		s.answerBody("", true)
		got := s.sent()
		if len(got) != 2 || got[0] != "local headers :status=200 content-type=application/json x-request-id=abc" || !strings.HasSuffix(got[1], " END") {
			t.Fatalf("sent %q", got)
		}
	})
}

// On the direct way the reply is the upstream's, with its trailers.
func TestReplyWithTrailers(t *testing.T) {
	t.Parallel()
	script(t, direct, func(s *scripted) {
		s.posted("")
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, false)
		s.answerTrailers()
		got := s.expectLike("response headers", "response body", "response trailers -grpc-status")
		if strings.HasSuffix(got[1], " END") {
			t.Errorf("the body ends before the trailers")
		}
	})
}

func TestStopStringEndsTheReply(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.posted(`,"stream":true,"stop":["!"]`)
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hi! there")...), false)
		got := s.expectLike(localStream, "local body data:")
		if !strings.HasSuffix(got[1], "data: [DONE]\n\n END") || strings.Contains(got[1], "there") {
			t.Errorf("not ended at the stop string: %s", got[1])
		}
	})
}

func TestEngineErrors(t *testing.T) {
	t.Parallel()
	const stream = `,"stream":true`
	hello := event("", tokens("<|channel|>final<|message|>Hello")...)
	for name, c := range map[string]struct {
		fields string
		drive  func(s *scripted)
	}{
		"status": {"", func(s *scripted) {
			s.answer(false, ":status=429", "retry-after=7", "content-type=application/json")
			s.answerBody(`{"error":{"message":"slow`, false)
			s.expect()
			s.answerBody(` down","code":429}}`, true)
			s.expectLike("immediate 429 retry-after=7 ")
		}},
		"local reply without a body": {"", func(s *scripted) {
			s.answer(true, ":status=503")
			s.expectLike("immediate 503")
		}},
		"endless error body": {"", func(s *scripted) {
			s.answer(false, ":status=500")
			for range 10 {
				s.answerBody(strings.Repeat("x", 20_000), false)
			}
			s.answerBody("", true)
			s.called() // the retry
			s.answer(true, ":status=500")
			s.expectLike("immediate 50")
		}},
		"compressed": {"", func(s *scripted) {
			s.answer(false, ":status=200", "content-encoding=gzip")
			s.expectLike("immediate 502 The engine's reply is compressed (gzip)")
		}},
		"first event, headers withheld": {stream, func(s *scripted) {
			const full = `data: {"error":{"message":"queue is full","type":"x","code":503}}` + "\n\n" + doneEvent
			s.answer(false, ":status=200", sse)
			s.answerBody(full, true)
			s.called() // the retry
			s.answer(false, ":status=200", sse)
			s.answerBody(full, true)
			s.expectLike("immediate 503")
		}},
		"mid-stream": {stream, func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.answerBody(hello, false)
			s.sent()
			s.answerBody(`data: {"error":{"message":"EngineCore encountered an issue","type":"x","code":500}}`+"\n\n", false)
			got := s.expectLike(`local body data: {"error":`)
			if !strings.HasSuffix(got[0], "data: [DONE]\n\n END") {
				s.t.Errorf("no clean end: %s", got[0])
			}
		}},
		"ended early": {"", func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.answerBody(hello, true)
			s.expectLike("immediate 502")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				s.posted(c.fields)
				c.drive(s)
			})
		})
	}
}

func TestEnvoyAnswersWhileTheBodyArrives(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post()
		s.body(`{"model":`, false)
		s.envoyAnswer(false, ":status=408", "content-type=text/plain")
		s.envoyAnswerBody("request timeout", true)
		s.expectLike("immediate 408 The gateway ended the request: Request Timeout")
	})
}

// If Envoy answers by itself, its answer is not taken for the engine's.
func TestEnvoyAnswersALoopbackExchange(t *testing.T) {
	t.Parallel()
	job := jobFunc(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	request := &scriptedRequest{reply: scriptedReply{steps: []api.Step{{Jobs: []api.Job{job}}}}}
	script(t, endpointOf(func(context.Context) api.Outcome { return api.Decoded(request) }), func(s *scripted) {
		s.postTest()
		s.expect()
		s.envoyAnswer(false, ":status=504", "content-type=text/plain")
		s.envoyAnswerBody("stream timeout", true)
		s.expectLike("immediate 504 The gateway ended the request: Gateway Timeout")
		s.wait(24 * time.Hour) // no timer is left
		s.expect()
	})
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	const stream = `,"stream":true`
	hello := event("", tokens("<|channel|>final<|message|>Hello")...)
	for name, c := range map[string]struct {
		fields string
		change func(*config.Config)
		drive  func(s *scripted)
	}{
		"first token": {"", nil, func(s *scripted) {
			s.wait(5 * time.Minute)
			s.expectLike("immediate 504 The engine did not begin to answer within 5m0s")
		}},
		"silence": {"", nil, func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.answerBody(hello, false)
			s.wait(2 * time.Minute)
			s.expectLike("immediate 504 The engine was silent for 2m0s")
		}},
		"total, streaming": {stream, func(c *config.Config) { c.Limits.TotalTimeout.Duration = time.Minute; c.Limits.KeepAlive.Duration = 0 }, func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.answerBody(hello, false)
			s.sent()
			s.wait(time.Minute)
			s.expectLike(`local body data: {"error":`)
		}},
		"headers are withheld for a while, then comments keep the stream alive": {stream, nil, func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.wait(time.Second)
			s.expect()
			s.wait(time.Second)
			s.expect(localStream)
			s.wait(30 * time.Second)
			s.expect("local body : keep-alive\n", "local body : keep-alive\n")
			s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
			s.expectLike("local body data: ")
			s.wait(30 * time.Second)
			s.expect("local body : keep-alive\n", "local body : keep-alive\n")
		}},
		"closing usage": {stream, nil, func(s *scripted) {
			s.answer(false, ":status=200", sse)
			s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...), false)
			s.sent()
			s.wait(2 * time.Second)
			got := s.expectLike("local body data:")
			if !strings.HasSuffix(got[0], "data: [DONE]\n\n END") {
				s.t.Errorf("no end: %s", got[0])
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(w *wiring) {
				if c.change != nil {
					c.change(w.cfg)
				}
			}
			script(t, change, func(s *scripted) {
				s.posted(c.fields)
				c.drive(s)
			})
		})
	}
}

// On the direct way Envoy takes no body of a reply before the upstream's has begun.
func TestCommentsWaitForTheUpstream(t *testing.T) {
	t.Parallel()
	script(t, direct, func(s *scripted) {
		s.posted(`,"stream":true`)
		s.answer(false, ":status=200", sse)
		s.wait(2 * time.Second)
		s.expect(streamHeaders)
		s.wait(30 * time.Second)
		s.expect()
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.expectLike("response body : keep-alive\n: keep-alive\ndata: ")
		s.wait(30 * time.Second)
		s.expect("response body : keep-alive\n", "response body : keep-alive\n")
	})
}

// However the engine's bytes are cut, the client's are the same.
func TestAnyCutting(t *testing.T) {
	t.Parallel()
	reply := event("", tokens("<|channel|>analysis<|message|>Hm ☃<|end|><|start|>assistant")...) +
		event("", tokens("<|channel|>final<|message|>Hello ")...) + ": comment\n\n" +
		event("stop", tokens("world 🙂<|return|>")...) + usageEvent + doneEvent
	script(t, nil, func(s *scripted) {
		whole := func(cut ...int) string {
			s.next()
			s.posted("")
			s.answer(false, ":status=200", sse)
			from := 0
			for _, at := range cut {
				s.answerBody(reply[from:at], false)
				from = at
			}
			s.answerBody(reply[from:], true)
			return strings.Join(s.sent(), "\n")
		}
		want := whole()
		for i := range reply {
			if got := whole(i); got != want {
				t.Fatalf("cut at %d: %s", i, cmp.Diff(want, got))
			}
		}
	})
}
