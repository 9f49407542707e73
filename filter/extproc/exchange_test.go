package extproc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

// The ways in which an exchange ends, by the numbers in exchange.go.
func TestLifeOfAnExchange(t *testing.T) {
	t.Parallel()
	const stream = `,"stream":true`
	hello := event("", tokens("<|channel|>final<|message|>Hello")...)
	whole := event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...) + usageEvent + doneEvent
	streams := func(s *scripted) { // the client has the beginning of its stream
		s.posted(stream)
		s.answer(false, ":status=200", sse)
		s.answerBody(hello, false)
		s.expectLike(localStream, "local body data: {")
	}
	waits := func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	ofJobs := endpointOf(func(context.Context) api.Outcome {
		return api.Decoded(&scriptedRequest{stream: true, reply: scriptedReply{steps: []api.Step{{Jobs: []api.Job{jobFunc(waits)}}}}})
	})
	for _, c := range []struct {
		name    string
		change  func(w *wiring)
		drive   func(s *scripted)
		goesOn  bool       // Envoy's stream
		code    codes.Code // of the stream's end
		outcome string     // in the log
	}{
		{"1. the reply has its end", nil, func(s *scripted) {
			s.posted(`,"stream":true,"stop":["!"]`)
			s.answer(false, ":status=200", sse)
			s.answerBody(event("", tokens("<|channel|>final<|message|>Hi!")...), false)
			if got := s.expectLike(localStream, "local body data: {"); !strings.HasSuffix(got[1], doneEvent+" END") {
				s.t.Errorf("no end: %s", got[1])
			}
			s.answerBody(hello, false) // of the engine, which goes on
			s.answerBody("", true)
			s.expect()
		}, true, codes.OK, "ok"},
		{"2. the client leaves", nil, func(s *scripted) {
			streams(s)
			s.leave()
		}, false, codes.OK, "canceled"},
		{"3. Envoy half-closes the stream", nil, func(s *scripted) {
			streams(s)
			s.halfClose(nil)
		}, false, codes.OK, "canceled"},
		{"3. the connection to Envoy breaks", nil, func(s *scripted) {
			streams(s)
			s.halfClose(status.Error(codes.Unavailable, "broken"))
		}, false, codes.Unavailable, "canceled"},
		{"4. Envoy answers by itself", ofJobs, func(s *scripted) {
			s.postTest()
			s.envoyAnswer(true, ":status=504")
			s.expectLike("immediate 504 The gateway ended the request: Gateway Timeout")
		}, true, codes.OK, "failed"},
		{"4. Envoy answers by itself, behind the headers", ofJobs, func(s *scripted) {
			s.postTest()
			s.wait(2 * time.Second)
			s.expect(localStream, "local body 1 jobs\n")
			s.envoyAnswer(true, ":status=504")
			s.expect()
		}, true, codes.OK, "failed"},
		{"5. the engine ends its answer", nil, func(s *scripted) {
			s.posted("")
			s.answer(false, ":status=200", sse)
			s.answerBody(whole, true)
			s.expectLike("local headers :status=200 content-type=application/json", "local body {")
		}, true, codes.OK, "ok"},
		{"6. the engine fails before its first token", nil, func(s *scripted) {
			s.posted("")
			s.loses()
			s.called() // the retry
			s.loses()
			s.expectLike("immediate 502 The engine was cut off before its reply was complete")
			if n := s.counted(s.t, "harmony_retries_total", ""); n != 1 {
				s.t.Errorf("%v retries", n)
			}
		}, true, codes.OK, "failed"},
		{"6. the engine fails mid-stream", nil, func(s *scripted) {
			streams(s)
			s.answerBody(`data: {"error":{"message":"EngineCore encountered an issue","type":"x","code":500}}`+"\n\n", false)
			if got := s.expectLike(`local body data: {"error":`); !strings.HasSuffix(got[0], doneEvent+" END") {
				s.t.Errorf("no end: %s", got[0])
			}
		}, true, codes.OK, "failed"},
		{"7. a deadline expires", nil, func(s *scripted) {
			s.posted("")
			s.wait(s.o.Config.Limits.FirstTokenTimeout.Duration)
			s.expectLike("immediate 504 The engine did not begin to answer")
		}, true, codes.OK, "failed"},
		{"7. a deadline expires mid-stream", nil, func(s *scripted) {
			streams(s)
			s.wait(s.o.Config.Limits.IdleTimeout.Duration)
			got := s.sent()
			if last := got[len(got)-1]; !strings.HasPrefix(last, `local body data: {"error":`) || !strings.HasSuffix(last, doneEvent+" END") {
				s.t.Errorf("no error at the end: %q", got)
			}
		}, true, codes.OK, "failed"},
		{"8. the process drains: a followed stream", endpointOf(func(context.Context) api.Outcome { return api.Streamed(&scriptedFollower{}) }), func(s *scripted) {
			s.postTest()
			s.Drain()
			s.wait(time.Second)
			s.expect(localStream, "local body failed END")
		}, true, codes.OK, "drain"},
		{"8. the process drains: another exchange", nil, func(s *scripted) {
			streams(s)
			s.Drain()
			s.wait(time.Second)
			s.expect()
			s.Abort()
			s.wait(0)
			if got := s.expectLike(`local body data: {"error":`); !strings.HasSuffix(got[0], doneEvent+" END") {
				s.t.Errorf("no end: %s", got[0])
			}
		}, true, codes.OK, "drain"},
		{"8. the process drains: another exchange, which ends in time", nil, func(s *scripted) {
			streams(s)
			s.Drain()
			s.answerBody(event("stop", tokens("<|return|>")...)+usageEvent+doneEvent, true)
			if got := s.expectLike("local body data: {", "local body data: [DONE]"); !strings.HasSuffix(got[1], doneEvent+" END") {
				s.t.Errorf("no end: %s", got[0])
			}
			s.Abort()
			s.wait(0)
			s.expect()
		}, true, codes.OK, "ok"},
		{"8. the process drains: an exchange that hangs", endpointOf(func(context.Context) api.Outcome { return api.Streamed(stuckFollower{}) }), func(s *scripted) {
			s.postTest()
			s.Abort()
			s.wait(time.Minute)
			s.expectLike(localStream, "local body : keep-alive", "local body : keep-alive", "local body : keep-alive", "local body : keep-alive")
			s.leave()         // as the gRPC server does when it stops
			s.wait(time.Hour) // until the follower ends
		}, false, codes.OK, "drain"},
		{"9. a panic", endpointOf(func(context.Context) api.Outcome { return api.Decoded(&panickingRequest{}) }), func(s *scripted) {
			s.postTest()
			s.expect()
		}, false, codes.Internal, "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			script(t, c.change, func(s *scripted) {
				c.drive(s)
				if goesOn := errors.Is(s.result(), errGoesOn); goesOn != c.goesOn {
					t.Errorf("the stream goes on: %t", goesOn)
				}
				s.leave()
				if code := status.Code(s.err); code != c.code {
					t.Errorf("the stream ends with %s", code)
				}
				lines := s.lines(t)
				if got := lines[len(lines)-1].Get("outcome").Str; got != c.outcome {
					t.Errorf("outcome %q, want %q", got, c.outcome)
				}
				s.begin() // the next exchange works
				s.get("GET", "/v1/files")
				s.expect("request headers")
			})
		})
	}
}

func TestFirstMessageMustBeHeaders(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.message(requestBody("", false))
		if err := s.result(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "request_header_mode") {
			t.Fatalf("error %v", err)
		}
	})
}

func TestResponseHeadersMustComeBeforeTheBody(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.posted("")
		s.message(responseBody("", false))
		if err := s.result(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "response_header_mode") {
			t.Fatalf("error %v", err)
		}
		if l := s.lines(t); l[len(l)-1].Get("code").Str != "ext_proc_mode" {
			t.Errorf("logged %s", s.testServer.log)
		}
	})
}
