package arguments_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/arguments"
)

// A model writes Python where JSON belongs.
func Example() {
	r := arguments.New("")
	for _, piece := range []string{`{'city': 'Pa`, `ris', 'exact': Tr`, `ue,`, `}`} {
		fmt.Print(string(r.Push([]byte(piece))))
	}
	rest, _, valid := r.End()
	fmt.Println(string(rest), valid)
	// Output: {"city": "Paris", "exact": true} true
}
