package constraint_test

import (
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
)

// An answer that is yes or no becomes a structural tag for the engine. A schema that
// no engine can enforce is rejected.
func Example() {
	promise := constraint.Spec{Answer: constraint.AnswerChoice{"yes", "no"}}
	tag := constraint.AppendStructuralTag(nil, promise.Format(nil))
	fmt.Println(gjson.GetBytes(tag, "format.elements.2")) // behind any reasoning and the answer's header
	fmt.Println("The expression", constraint.CheckRegex(nil, `(?<=a)b`))
	// Output:
	// {"type":"or","elements":[{"type":"const_string","value":"yes"},{"type":"const_string","value":"no"}]}
	// The expression is no regular expression that a grammar can be made of: those have no lookaround, no backreferences and no repetitions beyond 1000
}
