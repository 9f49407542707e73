package extproc

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// sequenceTexts are the bodies of the messages of FuzzSequence.
var sequenceTexts = []string{
	"", "{", ask(""), ask(`,"stream":true`), ask("")[:30], ask("")[30:],
	`{"model":"another","messages":[]}`, `{"model":"gpt-oss","input":"x"}`,
	engineReply(answerOutput), engineReply(callOutput), usageEvent, doneEvent, "data: {", "\xff\x00",
	`{"model":"gpt-oss","input":"x","stream":true}`, `{"model":"gpt-oss","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`,
}

// sequenceMessage is the message that a byte stands for.
func sequenceMessage(b byte) *extprocv3.ProcessingRequest {
	text, end := sequenceTexts[int(b>>3)%len(sequenceTexts)], b>>3 >= 16
	paths := []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models", "/v1/conversations", "/else"}
	switch b & 7 {
	case 0:
		return requestHeaders(duplex, duplex, end, ":method=POST", ":path="+paths[int(b>>3)%len(paths)], "content-type=application/json", "x-request-id=abc")
	case 1, 2:
		return requestBody(text, end)
	case 3:
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
	case 4:
		status := []string{":status=200", ":status=503", ":status=404", ":status=x"}[int(b>>3)%4]
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap([]string{status, sse}), EndOfStream: end}}}
	case 5, 6:
		return responseBody(text, end)
	}
	if end {
		return &extprocv3.ProcessingRequest{}
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
}

// FuzzSequence sends arbitrary sequences of messages, also those that Envoy never
// sends. The engine's reply is one of Envoy's upstreams, so that it is among them. The exchange does not panic, ends with Envoy's stream, and releases what it has
// taken of the budget. What it began has an end, or the stream ends with an error.
func FuzzSequence(f *testing.F) {
	// end is added to the index of a text: the body ends with it.
	const end = 16
	const post, whole, answer = 0, 1 | (end+2)<<3, 4
	const toResponses, toMessages = 1 << 3, 2 << 3
	for _, seed := range [][]byte{
		{post, whole, answer, 5 | 8<<3, 5 | (end+9)<<3},
		{post, 1 | 4<<3, 2 | (end+5)<<3, answer, 5 | (end+12)<<3},
		{answer, whole, post},
		{post, post},
		{whole, whole},
		{post, 3, 7, 7 | 16<<3},
		{7 | 16<<3},
		{post, whole, whole, answer, answer},
		{answer, post, whole, answer, 5 | (end+9)<<3},
		{answer, post, whole},
		{post, whole, post, whole},
		{post, whole, 5 | (end+8)<<3},
		{toResponses, 1 | (end+14)<<3, answer, 5 | 8<<3, 5 | (end+9)<<3},
		{toResponses, 1 | (end+14)<<3, answer, 5 | (end+12)<<3},
		{toResponses, 1 | (end+14)<<3},
		{toResponses, 1 | (end+14)<<3, answer, 5 | 8<<3, 7},
		{toResponses, 1 | (end+14)<<3, answer, 5 | 9<<3, 5 | 11<<3, 7},
		{toMessages, 1 | (end+15)<<3, answer, 5 | 8<<3, 5 | (end+9)<<3},
		{toMessages, 1 | (end+15)<<3, answer, 5 | (end+12)<<3},
		{toMessages, 1 | (end+15)<<3},
		{16 << 3},
		{3 << 3},
		{5 << 3, 1 | 2<<3, 3, answer, 5 | 13<<3, 7},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sequence []byte) {
		script(t, direct, func(s *scripted) {
			for _, b := range sequence[:min(len(sequence), 24)] {
				select {
				case s.in <- sequenceMessage(b):
				case <-s.ended:
				}
				synctest.Wait()
			}
			s.wait(2 * s.o.Config.Limits.TotalTimeout.Duration)
			sent := s.sent()
			// What passes through goes as far as it has come.
			begun := slices.ContainsFunc(sent, func(l string) bool { return strings.HasPrefix(l, "request headers :path=") })
			if begun && errors.Is(s.result(), errGoesOn) {
				checkReply(t, sent)
			}
			s.leave()
			synctest.Wait()
			if n := s.inUse(); n != 0 {
				t.Fatalf("%d bytes of the budget are lost", n)
			}
			for _, l := range s.lines(t) {
				if strings.HasPrefix(l.Get("msg").String(), "panic") {
					t.Fatalf("a panic: %s", l.Raw)
				}
			}
		})
	})
}
