package run

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// explained are the headers of a reply, or of the error in its place, that explain
// it.
func (r *testRun) explained() string {
	list := r.downstream.header
	if r.downstream.err != nil {
		list = r.Explain(nil, false)
	}
	var all []string
	for _, h := range list {
		if strings.HasPrefix(h.Name, "x-harmony-") {
			all = append(all, strings.TrimPrefix(h.Name, "x-harmony-")+"="+h.Value)
		}
	}
	return strings.Join(all, " ")
}

// A reply explains itself by the headers that are wanted and have something to say.
// Those of a stream are sent before its tokens.
func TestReplyHeaders(t *testing.T) {
	t.Parallel()
	from := func(replica string) Event {
		return Answered(200, http.Header{http.CanonicalHeaderKey(header.Upstream): {replica}}, nil)
	}
	usage := bytesOf(`data: {"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":9,"total_tokens":79,"prompt_tokens_details":{"cached_tokens":64}}}` + "\n\n")
	whole := func(first ...Event) []Event {
		text := answer("<|channel|>final<|message|>hi<|return|>")
		return slices.Concat(first, text[1:len(text)-1], []Event{usage, text[len(text)-1]})
	}
	for name, c := range map[string]struct {
		fields string
		names  []string
		events []Event
		want   string // %d stands for the tokens of the prompt
	}{
		"object":             {`,"user":"x"`, header.Explanations(), whole(from("10.0.0.1:1")), "ignored=user engine=main upstream=10.0.0.1:1 prompt-tokens=%d cached-tokens=64"},
		"stream":             {`,"stream":true`, header.Explanations(), whole(from("10.0.0.1:1")), "engine=main upstream=10.0.0.1:1 prompt-tokens=%d"},
		"retried":            {"", header.Explanations(), whole(from("10.0.0.1:1"), Broken(errBroken), from("10.0.0.2:1")), "engine=main upstream=10.0.0.2:1 retries=1 prompt-tokens=%d cached-tokens=64"},
		"retried stream":     {`,"stream":true`, []string{header.Retries}, whole(from("10.0.0.1:1"), Broken(errBroken), from("10.0.0.2:1")), "retries=1"},
		"retried, no code":   {"", []string{header.Retries}, whole(Answered(500, http.Header{}, nil), Ended(nil), from("10.0.0.2:1")), "retries=1"},
		"failed":             {"", []string{header.Engine, header.Retries}, []Event{from("10.0.0.1:1"), Broken(errBroken), from("10.0.0.2:1"), Broken(errBroken)}, "engine=main retries=1"},
		"none":               {`,"user":"x"`, nil, whole(from("10.0.0.1:1")), ""},
		"nothing to mention": {"", []string{header.Ignored, header.Retries, header.Upstream}, whole(ok()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestRun(t, chatRequest(t, c.fields, false), api.Loop, "vllm")
			r.env.Explain = c.names
			r.Start()
			r.feed(c.events...)
			want := c.want
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, len(r.executor.calls[0].Prompt))
			}
			if diff := cmp.Diff(want, r.explained()); diff != "" || !r.Ended() {
				t.Errorf("ended %t (-want +got):\n%s", r.Ended(), diff)
			}
		})
	}
}
