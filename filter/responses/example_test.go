package responses_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A request becomes a token request for an engine, and what the engine gives of
// it, here in two chunks, becomes the events of the reply.
func Example() {
	env := &turn.Env{
		Renderer: harmony.NewRenderer(),
		Now:      time.Now,
		NewID:    func(prefix string) string { return prefix + "0" }, // random bits in earnest
		Limits:   turn.DefaultLimits(),
	}
	scope := &turn.Scope{Env: env, Model: &turn.Model{}}
	api := &responses.API{} // without a store
	call, err := api.Decode(context.Background(), []byte(`{"model":"gpt-oss-20b","input":"Hi","stream":true}`), scope)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(call.Engine().Prompt), "tokens to the engine")

	said := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>Hello!<|return|>")
	reply := call.NewReply()
	var out []byte
	for _, chunk := range []engine.Chunk{{Tokens: said[:4]}, {Tokens: said[4:], Finish: engine.FinishStop}} {
		if out, err = reply.Push(out, &chunk); err != nil {
			fmt.Println(err)
			return
		}
	}
	for line := range strings.Lines(string(reply.End(out))) {
		if strings.HasPrefix(line, "event: ") {
			fmt.Print(line)
		}
	}
	// Output:
	// 68 tokens to the engine
	// event: response.created
	// event: response.in_progress
	// event: response.output_item.added
	// event: response.content_part.added
	// event: response.output_text.delta
	// event: response.output_text.delta
	// event: response.output_text.done
	// event: response.content_part.done
	// event: response.output_item.done
	// event: response.completed
}
