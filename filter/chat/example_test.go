package chat_test

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A request becomes a token request for an engine, and the engine's output, here
// in two chunks, becomes the reply.
func Example() {
	env := &turn.Env{
		Renderer: harmony.NewRenderer(),
		Now:      func() time.Time { return time.Unix(1767225600, 0) },
		NewID:    func(prefix string) string { return prefix + "0" }, // random bits in earnest
		Limits:   turn.DefaultLimits(),
	}
	rc := &turn.RequestContext{Env: env, Model: &turn.Model{}}
	request, err := chat.Decode(context.Background(), []byte(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]}`), rc)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(request.Engine().Prompt), "tokens to the engine")

	said := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>")
	reply := request.NewReply(api.SingleCall)
	var out []byte
	for _, chunk := range []engine.Chunk{{Tokens: said[:5]}, {Tokens: said[5:], Finish: engine.FinishStop}} {
		if out, err = reply.Push(out, &chunk); err != nil {
			fmt.Println(err)
			return
		}
	}
	if out, _, err = reply.Step(out); err == nil { // nothing is to be kept for later requests
		out, err = reply.End(out)
	}
	fmt.Println(string(out), err)
	// Output:
	// 68 tokens to the engine
	// {"id":"chatcmpl-0","object":"chat.completion","created":1767225600,"model":"gpt-oss-20b","system_fingerprint":null,"choices":[{"index":0,"message":{"role":"assistant","content":"Hello!","refusal":null,"reasoning":"A greeting.","reasoning_content":"A greeting."},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":68,"completion_tokens":15,"total_tokens":83,"completion_tokens_details":{"reasoning_tokens":3}}} <nil>
}
