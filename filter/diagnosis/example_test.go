package diagnosis_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A client writes the time into its instructions, so that no turn finds the tokens of
// the one before in the engine's cache.
func Example() {
	prompts := diagnosis.NewPrompts(1 << 20)
	session := diagnosis.Session{Tenant: "a", Key: "session-1"}
	for i, instructions := range []string{"It is 9:41. Be terse.", "It is 9:42. Be terse."} {
		now := diagnosis.NewPrint(
			diagnosis.Head{Model: "gpt-oss-20b", First: diagnosis.Text("Is it sunny in Oslo?"), Instructions: diagnosis.Text(instructions)},
			harmony.AppendEncodeSpecial(nil, "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.<|end|>"+
				"<|start|>developer<|message|># Instructions\n\n"+instructions+" Use the tools that you have, and say what you do not know.<|end|>"+
				"<|start|>user<|message|>Is it sunny in Oslo?<|end|><|start|>assistant"))
		found := prompts.Find(session, now)
		fmt.Println(i, found.Known, found.Cause, found.Message, found.Role, found.Shared, found.Lost)
		prompts.Keep(session, fmt.Sprint("resp_", i), now)
	}
	// Output:
	// 0 false  0  0 0
	// 1 true instructions 1 developer 16 46
}
