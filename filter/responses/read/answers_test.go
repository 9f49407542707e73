package read

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
)

// Each item that waits for the client is one that the client can send back, and so is what answers it.
// Each type of an output is the answer of one.
func TestAnswersAreItems(t *testing.T) {
	t.Parallel()
	answers := map[string]bool{}
	for kind := range itemTypes {
		answer := event.AnswerOf(kind)
		if answer == "" {
			continue
		}
		answers[answer] = true
		if _, ok := itemTypes[answer]; !ok {
			t.Errorf("%s is answered by %s, which is no type of item", kind, answer)
		}
	}

	// A program is run by OpenAI's service: nobody here waits for its output.
	answers["program_output"] = true
	for kind := range itemTypes {
		if (strings.HasSuffix(kind, "_output") || strings.HasSuffix(kind, "_response")) && !answers[kind] {
			t.Errorf("no type of item waits for a %s: name the one that does in filter/responses/event/read.go", kind)
		}
	}
}
