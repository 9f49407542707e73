package write

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestModelCalls shows that a reply counts all its model calls.
func TestModelCalls(t *testing.T) {
	t.Parallel()
	const called = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"
	call := func(text string) *Request {
		return mustRead(t, `{"model":"gpt-oss-20b","input":`+apitest.Quote(text)+`,"include":["usage.per_turn"]`+weatherTool+`}`)
	}
	first := call("Hi")
	short := first.Turn
	r := first.newReply(api.SingleCall)
	push := func(text string, cached int) {
		t.Helper()
		if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(text), Finish: engine.FinishStop, Usage: &engine.Usage{CachedTokens: cached}}); err != nil {
			t.Fatal(err)
		}
	}
	push(called, 1)
	longer := call("Hi" + strings.Repeat(" and more", 50))
	r.encoder.beginTurn(longer.Turn)
	push(called, 2)
	if err := r.Fault(); err != nil {
		t.Errorf("a longer prompt: %v", err)
	}
	r.encoder.beginTurn(short)
	push(said, 3)
	if err := r.Fault(); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a shorter prompt: %v", err)
	}
	a, b, out, last := len(short.Engine.Prompt), len(longer.Engine().Prompt), len(apitest.Tokens(called)), len(apitest.Tokens(said))
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

// TestMessagesOfManyCalls shows that what the tools gave between two model calls
// is output.
func TestMessagesOfManyCalls(t *testing.T) {
	t.Parallel()
	const (
		called  = " to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"
		history = `,{"type":"function_call","call_id":"c","name":"get_weather","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"sunny"}`
	)
	ask := func(more string) *Request {
		return mustRead(t, `{"model":"gpt-oss-20b","input":[{"role":"user","content":"Hi"}`+more+`],"enable_response_messages":true`+weatherTool+`}`)
	}
	r := ask("").newReply(api.SingleCall)
	out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(called), Finish: engine.FinishStop})
	if err != nil {
		t.Fatal(err)
	}
	r.encoder.beginTurn(ask(history).Turn)
	if out, err = r.Push(out, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop}); err != nil {
		t.Fatal(err)
	}
	object := gjson.ParseBytes(mustEnd(t, r, out))
	var got []string
	for _, member := range []string{"input_messages", "output_messages"} {
		for _, m := range messagesOf(t, object, member) {
			got = append(got, string(m.Role)+" "+m.Name+" "+m.Recipient+" "+m.Channel)
		}
		got = append(got, "")
	}
	want := []string{
		"system   ", "developer   ", "user   ", "",
		"assistant  functions.get_weather commentary", "tool functions.get_weather assistant commentary", "assistant   final", "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

const (
	weatherTool = `,"tools":[{"type":"function",` + apitest.WeatherTool + `}]`
	said        = "<|channel|>final<|message|>answer<|return|>"
)

// mustRead reads a request.
func mustRead(t testing.TB, body string) *Request {
	t.Helper()
	q, err := (&read.Reader{}).Read(t.Context(), []byte(body), apitest.NewContext())
	if err != nil {
		t.Fatal(err)
	}
	return &Request{Request: q, Services: &Services{}}
}

// mustEnd ends a reply that has no error.
func mustEnd(t testing.TB, r *Reply, out []byte) []byte {
	t.Helper()
	out, err := apitest.End(t, r, out)
	if err != nil {
		t.Fatalf("End: %v", err)
	}
	return out
}

// messagesOf reads a list of Harmony messages of a response.
func messagesOf(t *testing.T, object gjson.Result, member string) []harmony.Message {
	t.Helper()
	msgs, err := harmony.UnmarshalConversation([]byte(`{"messages":` + object.Get(member).Raw + `}`))
	if err != nil {
		t.Fatalf("%s: %v\n%s", member, err, object.Get(member).Raw)
	}
	return msgs
}
