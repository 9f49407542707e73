package output_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Tokens become events, in chunks of any size.
func Example() {
	rc := &request.Context{Env: &request.Env{}, Model: &request.Model{}}
	plan := output.NewPlan(rc, &request.Input{Stop: []string{"."}}, &toolset.Set{})
	plan.Call = &engine.Request{N: 1}

	reader := plan.NewReader(func(e item.Event) {
		switch e.Step {
		case item.Start:
			fmt.Printf("%s: ", e.Kind)
		case item.Delta:
			fmt.Printf("%s", e.Text)
		case item.End:
			fmt.Println()
		}
	})
	for _, token := range harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm.<|end|>"+
		"<|start|>assistant<|channel|>final<|message|>It is sunny. And warm.") {
		if _, err := reader.Push(&engine.Chunk{Tokens: []harmony.Token{token}}); err != nil {
			fmt.Println(err)
		}
	}

	fmt.Println(reader.Finish(), reader.Early())
	// Output:
	// reasoning: Hm.
	// answer: It is sunny
	// stop true
}
