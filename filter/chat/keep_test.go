package chat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

const reasonedCall = "<|channel|>analysis<|message|>why<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"

// TestKeepReasoning shows for a reply with a tool call, in both modes, that a stream
// has its finish event after the reasoning is kept, and that the next request has
// the reasoning in its prompt without sending it back.
func TestKeepReasoning(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]api.Mode{"single call": api.SingleCall, "loop": api.Loop} {
		for _, stream := range []string{``, `,"stream":true,"return_token_ids":true`} {
			rc := apitest.NewContext()
			r := callReply(t, rc, mode, stream)
			out, step, err := r.Step(nil)
			if err != nil || step.Call != nil || len(step.Jobs) != 1 || strings.Contains(string(out), "finish_reason") {
				t.Fatalf("%s%s: step %v, error %v\n%s", name, stream, step, err, out)
			}
			if _, again, err := r.Step(nil); err != nil || again.Call != nil || len(again.Jobs) > 0 {
				t.Errorf("%s%s: the jobs come twice: %v, error %v", name, stream, again, err)
			}
			result, doErr := step.Jobs[0].Do(context.Background())
			out, err = r.End(r.JobDone(out, 0, result, doErr))
			if err != nil || r.Fault() != nil || !strings.Contains(string(out), `"finish_reason":"tool_calls"`) {
				t.Errorf("%s%s: error %v, fault %v\n%s", name, stream, err, r.Fault(), out)
			}
			if prompt := apitest.Spell(t, decodeWith(t, rc, answeredCall).Engine().Prompt); !strings.Contains(prompt, "<|channel|>analysis<|message|>why<|end|>") {
				t.Errorf("%s%s: the next prompt is\n%s", name, stream, prompt)
			}
		}
	}
}

// answeredCall is the request after the reply of [TestKeepReasoning].
const answeredCall = `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"},
	{"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},
	{"role":"tool","tool_call_id":"call_1","content":"sunny"}]}`

// TestKeepFails shows that the client gets its reply even if the reasoning could not
// be kept.
func TestKeepFails(t *testing.T) {
	t.Parallel()
	r := callReply(t, apitest.NewContext(), api.Loop, ``)
	out, _, err := r.Step(nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	out, err = r.End(r.JobDone(out, 0, nil, broken))
	if err != nil || !errors.Is(r.Fault(), broken) || parseObject(t, string(out)).Choices[0].Finish == nil {
		t.Errorf("error %v, fault %v\n%s", err, r.Fault(), out)
	}
}

// TestKeepWithoutEnd shows that reasoning is kept if the reply fails, and if the
// client leaves.
func TestKeepWithoutEnd(t *testing.T) {
	t.Parallel()
	r := callReply(t, apitest.NewContext(), api.Loop, ``)
	r.Fail(nil, apierror.New(504, "timeout", "", "Too slow."))
	if _, step, err := r.Step(nil); err != nil || len(step.Jobs) != 1 {
		t.Errorf("after a failure: %v, %v", step, err)
	}
	if jobs := r.Cancel(); len(jobs) > 0 {
		t.Errorf("the jobs come twice: %v", jobs)
	}
	r = callReply(t, apitest.NewContext(), api.Loop, ``)
	if jobs := r.Cancel(); len(jobs) != 1 {
		t.Errorf("the client has left: %v", jobs)
	}
	if out, err := r.End(nil); len(out) > 0 || err != nil {
		t.Errorf("after the end: %s, %v", out, err)
	}
}

// callReply returns a reply with a tool call, after its last chunk.
func callReply(t *testing.T, rc *turn.RequestContext, mode api.Mode, members string) api.Reply {
	t.Helper()
	r := decodeWith(t, rc, ask(weatherTool+members)).NewReply(mode)
	if mode == api.Loop {
		if _, step, err := r.Step(nil); err != nil || step.Call == nil {
			t.Fatalf("the first step is %v, error %v", step, err)
		}
	}
	out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(reasonedCall), Finish: engine.FinishStop})
	if err != nil || strings.Contains(string(out), "tool_calls\"}") {
		t.Fatalf("Push: %v\n%s", err, out)
	}
	return r
}
