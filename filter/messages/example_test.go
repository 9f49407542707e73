package messages_test

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func Example() {
	rc := &turn.RequestContext{
		Env:   &turn.Env{Renderer: harmony.NewRenderer(), Now: time.Now, NewID: func(prefix string) string { return prefix + "1" }, Limits: turn.DefaultLimits()},
		Model: &turn.Model{},
	}
	body := `{"model": "gpt-oss-20b", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}`
	request, err := (&messages.API{}).Decode(context.Background(), []byte(body), rc)
	if err != nil {
		fmt.Println(err)
		return
	}
	reply := request.NewReply(api.SingleCall)
	out, _ := reply.Push(nil, &engine.Chunk{
		Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>Hi!<|return|>"), Finish: engine.FinishStop,
	})
	out, _, _ = reply.Step(out)
	out, _ = reply.End(out)
	fmt.Println(string(out))
	// Output:
	// {"id":"msg_1","type":"message","role":"assistant","model":"gpt-oss-20b","content":[{"type":"text","text":"Hi!"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":68,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":6,"output_tokens_details":{"thinking_tokens":0}}}
}
