package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestUsagePerTurn(t *testing.T) {
	t.Parallel()
	const unknown = engine.Unknown
	for _, c := range []struct {
		name  string
		usage usage
		want  string // in, cached, out, tools; each total and list
	}{
		{"one", usage{turns: []turnUsage{{10, 4, 3, 1}}}, "10 [10] 4 [4] 3 [3] 0 [0]"},
		{"cached not reported", usage{turns: []turnUsage{{10, unknown, 3, 1}}}, "10 [10] 0 [0] 3 [3] 0 [0]"},
		{"tools", usage{turns: []turnUsage{{10, 0, 3, 1}, {20, 12, 5, 0}, {27, unknown, 1, 0}}}, "57 [10,20,27] 12 [0,12,0] 9 [3,5,1] 9 [0,7,2]"},
		{"shorter", usage{turns: []turnUsage{{10, 0, 3, 1}, {12, 0, 5, 0}}}, "22 [10,12] 0 [0,0] 8 [3,5] 0 [0,0]"},
		{"several requests", usage{turns: []turnUsage{{10, 1, 3, 0}, {20, 12, 5, 2}}, earlier: 1}, "20 [10,20] 12 [1,12] 5 [3,5] 7 [0,7]"},
	} {
		written := gjson.ParseBytes(c.usage.append(nil, true))
		in, out := written.Get("input_tokens_details"), written.Get("output_tokens_details")
		got := fmt.Sprint(
			written.Get("input_tokens"), " ", in.Get("input_tokens_per_turn"), " ", in.Get("cached_tokens"), " ", in.Get("cached_tokens_per_turn"), " ",
			written.Get("output_tokens"), " ", out.Get("output_tokens_per_turn"), " ", out.Get("tool_output_tokens"), " ", out.Get("tool_output_tokens_per_turn"))
		if got != c.want || written.Get("total_tokens").Int() != written.Get("input_tokens").Int()+written.Get("output_tokens").Int() {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if plain := string(c.usage.append(nil, false)); strings.Contains(plain, "turn") || strings.Contains(plain, "tool") {
			t.Errorf("%s: not asked for: %s", c.name, plain)
		}
	}
}

// TestContinued shows that a usage continues that of a response object.
func TestContinued(t *testing.T) {
	t.Parallel()
	want := usage{turns: []turnUsage{{input: 10, cached: 0, output: 3}, {input: 20, cached: 12, output: 5}}, earlier: 2}
	object := append(append([]byte(`{"usage":`), (&usage{turns: want.turns}).append(nil, true)...), '}')
	same := cmp.AllowUnexported(usage{}, turnUsage{})
	if diff := cmp.Diff(want, continued(object), same); diff != "" {
		t.Errorf("per turn (-want +got):\n%s", diff)
	}
	want = usage{turns: []turnUsage{{input: 30, cached: 12, output: 8}}, earlier: 1}
	object = append(append([]byte(`{"usage":`), (&usage{turns: continued(object).turns}).append(nil, false)...), '}')
	if diff := cmp.Diff(want, continued(object), same); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	for _, object := range []string{`{}`, `{"usage":null}`, `{"usage":{"input_tokens":1}}`, `x`} {
		if u := continued([]byte(object)); len(u.turns) != 0 || u.earlier != 0 {
			t.Errorf("%s: %+v", object, u)
		}
	}
}

// TestModelCalls shows that a reply counts all its model calls.
func TestModelCalls(t *testing.T) {
	t.Parallel()
	const called = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"
	call := func(text string) *Request {
		return mustDecode(t, `{"model":"gpt-oss-20b","input":`+apitest.Quote(text)+`,"include":["usage.per_turn"]`+weatherTool+`}`)
	}
	first := call("Hi")
	r := first.newReply(api.SingleCall)
	push := func(text string, cached int) {
		t.Helper()
		if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(text), Finish: engine.FinishStop, Usage: &engine.Usage{CachedTokens: cached}}); err != nil {
			t.Fatal(err)
		}
	}
	push(called, 1)
	longer := call("Hi" + strings.Repeat(" and more", 50))
	r.model.begin(longer.turn, r.event)
	push(called, 2)
	if err := r.Fault(); err != nil {
		t.Errorf("a longer prompt: %v", err)
	}
	r.model.begin(first.turn, r.event)
	push(said, 3)
	if err := r.Fault(); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a shorter prompt: %v", err)
	}
	a, b, out, last := len(first.Engine().Prompt), len(longer.Engine().Prompt), len(apitest.Tokens(called)), len(apitest.Tokens(said))
	usage := gjson.GetBytes(mustEnd(t, r, nil), "usage")
	want := fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":6,"cache_write_tokens":0,"input_tokens_per_turn":[%d,%d,%d],"cached_tokens_per_turn":[1,2,3]},`+
		`"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":2,"tool_output_tokens":%d,"output_tokens_per_turn":[%d,%d,%d],"tool_output_tokens_per_turn":[0,%d,0]},"total_tokens":%d}`,
		2*a+b, a, b, a, 2*out+last, b-a-out, out, out, last, b-a-out, 2*a+b+2*out+last)
	if usage.Raw != want {
		t.Errorf("usage is\n%s, want\n%s", usage.Raw, want)
	}
	s := r.Summary()
	if got, want := (turn.Summary{Prompt: s.Prompt, Cached: s.Cached, Calls: s.Calls, Finish: s.Finish, Counts: turn.Counts{Output: s.Counts.Output, Reasoning: s.Counts.Reasoning}}),
		(turn.Summary{Prompt: 2*a + b, Cached: 6, Calls: 2, Finish: turn.FinishStop, Counts: turn.Counts{Output: 2*out + last, Reasoning: 2}}); !cmp.Equal(got, want) {
		t.Errorf("Summary is %+v, want %+v", got, want)
	}
}

// TestSettings shows what the operator can set for all responses.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.UsagePerTurn, s.OpenReasoningEvents = true, true
	request, err := s.decode([]byte(ask(`,"stream":true`)), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	events := run(t, request, apitest.Said("<|channel|>analysis<|message|>think<|end|><|start|>assistant"+said).Chunks(apitest.Size(1)))
	for _, kind := range []string{"response.reasoning.delta", "response.reasoning.done", "input_tokens_per_turn"} {
		if !strings.Contains(events, kind) {
			t.Errorf("no %s in\n%s", kind, events)
		}
	}
	if strings.Contains(events, "response.reasoning_text.") {
		t.Errorf("both names in\n%s", events)
	}
}
