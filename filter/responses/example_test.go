package responses_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A request becomes a token request for an engine, and the engine's output, here in
// two chunks, becomes the events of the reply.
func Example() {
	env := &turn.Env{
		Renderer: harmony.NewRenderer(),
		Now:      time.Now,
		NewID:    func(prefix string) string { return prefix + "0" }, // random bits in earnest
		Limits:   turn.DefaultLimits(),
	}
	rc := &turn.RequestContext{Env: env, Model: &turn.Model{}}
	endpoints := (&responses.API{}).Endpoints() // without a store
	endpoint, _ := api.Match(endpoints, "POST", "/v1/responses")
	body := []byte(`{"model":"gpt-oss-20b","input":"Hi","stream":true}`)
	request := endpoint.Handle(context.Background(), &api.HTTPRequest{Body: body, Context: rc}).Request
	fmt.Println(len(request.Engine().Prompt), "tokens to the engine")

	said := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>Hello!<|return|>")
	reply := request.NewReply(api.SingleCall)
	var out []byte
	var err *apierror.Error
	for _, chunk := range []engine.Chunk{{Tokens: said[:4]}, {Tokens: said[4:], Finish: engine.FinishStop}} {
		if out, err = reply.Push(out, &chunk); err != nil {
			fmt.Println(err)
			return
		}
	}
	out, _, _ = reply.Step(out) // without a store there is no job
	out, _ = reply.End(out)
	for line := range strings.Lines(string(out)) {
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
