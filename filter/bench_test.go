package filter

import (
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// BenchmarkToken is what the filter itself adds to one streamed token: one
// engine event in, one chat chunk out, without gRPC.
func BenchmarkToken(b *testing.B) {
	s := newScript(&testing.T{}, nil)
	s.post()
	s.body(ask(`,"stream":true`), true)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>final<|message|>")...), false)
	message := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte(event("", tokens(" word")[0]))},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.x.receive(message, s.now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequest is what the filter adds to a request: a conversation of 40
// messages that were rendered before.
func BenchmarkRequest(b *testing.B) {
	history := strings.Repeat(`{"role":"user","content":"Tell me more about the rivers of Europe, please."},{"role":"assistant","content":"The Danube flows through ten countries, more than any other river in the world."},`, 20)
	body := `{"model":"gpt-oss-20b","stream":true,"messages":[` + history + `{"role":"user","content":"Which is the longest?"}]}`
	s := newScript(&testing.T{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		s.x = newExchange(s.x.ctx, s.x.s, s.now)
		s.post()
		s.body(body, true)
		if s.x.phase != phaseEngine {
			b.Fatal("the request was not sent on")
		}
		s.x.close(s.now)
	}
	b.ReportMetric(float64(len(s.x.run.call.Engine().Prompt)), "tokens")
}

// TestTokenDoesNotAllocate holds the token path to its promise.
func TestTokenDoesNotAllocate(t *testing.T) {
	s := newScript(t, nil)
	s.post()
	s.body(ask(`,"stream":true`), true)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>final<|message|>")...), false)
	message := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte(event("", tokens(" word")[0]))},
	}}
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.x.receive(message, s.now); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a token", n)
	}
}
