package extproc

import (
	"maps"
	"testing"
	"time"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	aitypev3 "github.com/envoyproxy/go-control-plane/envoy/type/ai/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The user's text is in the metadata only where that is configured.
func TestMetadataText(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]any{0: nil, 5: "Hi th"} {
		script(t, func(w *wiring) { w.cfg.Routing.SelectionTextBytes, w.direct = size, true }, func(s *scripted) {
			s.post()
			s.body(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi  there"}]}`, true)
			if diff := cmp.Diff(want, s.metadata["text"]); diff != "" || s.metadata["api"] != "chat" {
				t.Errorf("of %d bytes (-want +got):\n%s\n%v", size, diff, s.metadata)
			}
		})
	}
}

// expectMetadata compares the fields of the reply, and checks that those of the request are there, and
// that they came with the last message; those of the request came with the first one.
func (s *scripted) expectMetadata(want map[string]any) {
	s.t.Helper()
	got := maps.Clone(s.metadata)
	for _, field := range []string{"api", "model", "engine", "stream", "choices", "prompt_tokens", "max_tokens", "items", "tools"} {
		if got[field] == nil {
			s.t.Errorf("%s is missing", field)
		}
		delete(got, field)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("metadata (-want +got):\n%s", diff)
	}
	// An error is the only message.
	if n := len(s.described); n != min(s.messages, 2) || s.described[n-1] != s.messages {
		s.t.Errorf("messages %v of %d had metadata", s.described, s.messages)
	}
}

// The last message of a reply has what it cost and how it ended, whatever the
// message is.
func TestMetadataOfAReply(t *testing.T) {
	t.Parallel()
	output := event("", tokens("<|channel|>analysis<|message|>Hm")...) + event("stop", tokens("<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>")...)
	said := func(prompt float64) map[string]any {
		return map[string]any{
			"outcome": "ok", "status": 200.0, "finish": "stop", "repairs": 0.0, "retries": 0.0, "tool_calls": 0.0, "time_to_first_token_ms": 250.0,
			"input_tokens": prompt, "cached_tokens": 64.0, "output_tokens": 12.0, "reasoning_tokens": 1.0, "total_tokens": prompt + 12,
		}
	}
	for name, c := range map[string]struct {
		fields string
		answer func(s *scripted)
		change func(want map[string]any)
	}{
		"object":   {"", func(s *scripted) { s.answerBody(output+usageEvent+doneEvent, true) }, func(map[string]any) {}},
		"stream":   {`,"stream":true`, func(s *scripted) { s.answerBody(output, false); s.answerBody(usageEvent+doneEvent, true) }, func(map[string]any) {}},
		"trailers": {"", func(s *scripted) { s.answerBody(output+usageEvent+doneEvent, false); s.answerTrailers() }, func(map[string]any) {}},
		"no usage of the engine": {"", func(s *scripted) { s.answerBody(output+doneEvent, true) }, func(want map[string]any) {
			delete(want, "cached_tokens")
		}},
		"broken stream": {`,"stream":true`, func(s *scripted) {
			s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
			s.answerBody("", true)
		}, func(want map[string]any) {
			delete(want, "cached_tokens")
			delete(want, "finish")
			want["outcome"], want["status"], want["output_tokens"], want["reasoning_tokens"] = "failed", 502.0, 4.0, 0.0
			want["total_tokens"] = want["input_tokens"].(float64) + 4
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []func(*wiring){nil, direct} {
				script(t, way, func(s *scripted) {
					s.posted(c.fields)
					s.wait(250 * time.Millisecond)
					s.answer(false, ":status=200", sse)
					c.answer(s)
					want := said(s.metadata["prompt_tokens"].(float64))
					c.change(want)
					s.expectMetadata(want)
				})
			}
		})
	}
}

// A reply that no engine has begun has used no tokens.
func TestMetadataOfAnError(t *testing.T) {
	t.Parallel()
	want := map[string]any{"outcome": "rejected", "status": 429.0, "retries": 0.0, "tool_calls": 0.0}
	script(t, nil, func(s *scripted) {
		s.posted("")
		s.answer(false, ":status=429", "content-type=application/json")
		s.answerBody(`{"error":{"message":"busy"}}`, true)
		s.expectLike("immediate 429")
		s.expectMetadata(want)
		if s.usage != nil {
			t.Errorf("usage %v", s.usage)
		}
		s.next()
		s.post()
		s.body(`{"model":"gpt-oss-20b","messages":7}`, true)
		s.expectLike("immediate 400")
		want["api"], want["model"], want["engine"], want["status"] = "chat", "gpt-oss-20b", "main", 400.0
		if diff := cmp.Diff(want, s.metadata); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
	})
}

// Requests that ask no model, and those whose client leaves, have no end in the
// metadata.
func TestNoMetadataOfAReply(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo("/v1/conversations", `{}`)
		s.expectLike("immediate 200")
		if s.metadata != nil {
			t.Errorf("metadata %v", s.metadata)
		}
		s.next()
		s.posted("")
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>analysis<|message|>Hm")...), false)
		s.leave()
		if s.metadata["outcome"] != nil || s.usage != nil {
			t.Errorf("metadata %v, usage %v", s.metadata, s.usage)
		}
	})
}

func TestTokenUsage(t *testing.T) {
	t.Parallel()
	number := wrapperspb.UInt64
	for name, c := range map[string]struct {
		api    string
		report telemetry.Report
		want   *aidatav3.TokenUsage
	}{
		"complete": {"chat", telemetry.Report{Answered: true, Complete: true, Summary: turn.Summary{Prompt: 70, Cached: 64, Counts: turn.Counts{Output: 9, Reasoning: 3}}}, &aidatav3.TokenUsage{
			LlmProtocol: aitypev3.LLMProtocol_OPENAI_CHAT_COMPLETIONS, Model: "m\ufffd", InputTokens: number(70), OutputTokens: number(9), TotalTokens: number(79),
			InputTokenDetails:  &aidatav3.InputTokenDetails{CachedTokens: number(64)},
			OutputTokenDetails: &aidatav3.OutputTokenDetails{ReasoningTokens: number(3)}, ExtractionStatus: aidatav3.TokenUsage_COMPLETE,
		}},
		"broken": {"responses", telemetry.Report{Answered: true, Summary: turn.Summary{Prompt: 70, Cached: engine.Unknown}}, &aidatav3.TokenUsage{
			LlmProtocol: aitypev3.LLMProtocol_OPENAI_RESPONSES, Model: "m\ufffd", InputTokens: number(70), OutputTokens: number(0), TotalTokens: number(70),
			OutputTokenDetails: &aidatav3.OutputTokenDetails{ReasoningTokens: number(0)}, ExtractionStatus: aidatav3.TokenUsage_PARTIAL,
		}},
		"a message": {"messages", telemetry.Report{Answered: true, Complete: true, Summary: turn.Summary{Prompt: 70, Cached: engine.Unknown}}, &aidatav3.TokenUsage{
			LlmProtocol: aitypev3.LLMProtocol_ANTHROPIC_MESSAGES, Model: "m\ufffd", InputTokens: number(70), OutputTokens: number(0), TotalTokens: number(70),
			OutputTokenDetails: &aidatav3.OutputTokenDetails{ReasoningTokens: number(0)}, ExtractionStatus: aidatav3.TokenUsage_COMPLETE,
		}},
		"no answer": {"chat", telemetry.Report{Complete: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, tokenUsage(c.api, "m\xff", &c.report), protocmp.Transform()); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}
