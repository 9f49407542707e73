package turn_test

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A conversation becomes a token request, and the tokens that come back become
// reasoning, text and calls.
func Example() {
	env := &turn.Env{
		Renderer: harmony.NewRenderer(),
		Now:      time.Now,
		NewID:    func(prefix string) string { return prefix + "0" }, // random bits in earnest
		Limits:   turn.DefaultLimits(),
	}

	rc := &turn.RequestContext{Env: env, Model: &turn.Model{}}
	t, err := turn.Prepare(context.Background(), rc, &turn.Input{
		Items: []turn.Item{{Kind: turn.User, Text: "Is it sunny in Oslo?"}},
		Tools: []harmony.Namespace{{Name: turn.FunctionsNamespace, Tools: []harmony.Tool{{Name: "forecast"}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	said := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>I do not know.<|end|>"+
		`<|start|>assistant to=functions.forecast<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>`)
	reader := t.NewReader(func(e turn.Event) {
		switch {
		case e.Step == turn.Start && e.Kind == turn.Call:
			fmt.Printf("call of %s: ", e.Call.Name)
		case e.Step == turn.Start:
			fmt.Printf("%s: ", e.Kind)
		case e.Step == turn.Delta:
			fmt.Printf("%s", e.Text)
		case e.Step == turn.End:
			fmt.Println()
		}
	})

	if _, err := reader.Push(&engine.Chunk{Tokens: said, Finish: engine.FinishStop}); err != nil {
		fmt.Println(err)
	}

	fmt.Println(reader.Finish())
	// Output:
	// reasoning: I do not know.
	// call of forecast: {"city": "Oslo"}
	// tool_calls
}
