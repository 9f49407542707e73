package extproc

import (
	"testing"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

// onDemand sends a request's headers where bodies come only if the filter asks.
func (s *scripted) onDemand(end bool, fields ...string) {
	s.t.Helper()
	const none = extprocfilterv3.ProcessingMode_NONE
	s.message(requestHeaders(none, none, end, fields...))
}

const (
	requestOnly = " {request SEND FULL_DUPLEX_STREAMED SEND, response SKIP NONE SKIP}"
	bothWays    = " {request SEND FULL_DUPLEX_STREAMED SEND, response SEND FULL_DUPLEX_STREAMED SEND}"
)

var chatHeaders = []string{":method=POST", ":path=/v1/chat/completions", "content-type=application/json", "x-request-id=abc"}

// Other paths' bodies are not asked for, nor those of requests that have none.
func TestBodiesOnDemandOfOthers(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.onDemand(false, ":method=POST", ":path=/v1/embeddings", "content-type=application/json", "x-harmony-engine=main")
		s.expect("request headers -x-harmony-engine reroute")
	})
	script(t, nil, func(s *scripted) {
		s.onDemand(true, chatHeaders...)
		s.expectLike("immediate 400")
	})
}

// The reply for another model is not asked for.
func TestBodiesOnDemandOfOtherModels(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.onDemand(false, chatHeaders...)
		s.expect("mode" + requestOnly)
		s.body(`{"model":"llama"`, false)
		s.expect("request headers"+requestOnly, `request body {"model":"llama"`)
		s.body(`}`, false)
		s.trailers()
		s.expect("request body }", "request trailers")
		s.leave()
		if n := s.counted(t, "harmony_passthrough_total", ""); n != 1 {
			t.Errorf("counted %v times", n)
		}
	})
}

// A model call that Envoy makes of the client's own request has its reply here.
func TestBodiesOnDemandOfHarmonyModels(t *testing.T) {
	t.Parallel()
	script(t, direct, func(s *scripted) {
		s.onDemand(false, chatHeaders...)
		s.body(ask(""), true)
		s.expectLike("mode"+bothWays, "request headers", "request body")
		s.answer(false, ":status=503")
		s.answerBody("x", true)
		s.expectLike("immediate 50")
	})
}

// Through a loopback listener the reply comes from there.
func TestBodiesOnDemandWithLoopback(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.onDemand(false, chatHeaders...)
		s.expect("mode" + requestOnly)
		s.body(ask(""), true)
		s.toEngine()
	})
}
