package kept

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// TestFirstKept shows that a turn with very many steps does not have another beginning with each step.
func TestFirstKept(t *testing.T) {
	t.Parallel()
	changes := 0
	for steps := range 4 * maxSteps {
		first := firstKept(steps, true)
		if n := steps - first; n > maxSteps || first > 0 && n < maxSteps/2 {
			t.Fatalf("of %d steps %d are read", steps, n)
		}
		if first != firstKept(max(0, steps-1), true) {
			changes++
		}
		if got := firstKept(steps, false); got != max(0, steps-maxSteps) {
			t.Fatalf("of %d steps those from %d on", steps, got)
		}
	}
	if changes != 6 {
		t.Errorf("%d changes", changes)
	}
}

// TestFinishedStepsAreBounded shows that of a long conversation the last steps alone are read.
func TestFinishedStepsAreBounded(t *testing.T) {
	t.Parallel()
	items := make([]item.Item, 0, 1+4*(3*maxSteps))
	items = append(items, item.Item{Kind: item.User, Text: "Hi"})
	for i := range 3 * maxSteps {
		id := "call_" + strconv.Itoa(i)
		items = append(items, item.Item{Kind: item.Call, CallID: id, Name: "f"}, item.Item{Kind: item.Result, CallID: id}, item.Item{Kind: item.Answer, Text: "a"}, item.Item{Kind: item.User, Text: "Hi"})
	}
	rc := &request.Context{Model: &request.Model{History: request.HistoryExact}}
	_, err := insertKept(rc, nil, items, func(names []string) (map[string]string, error) {
		if len(names) != 2*maxSteps || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "reasoning:") }) {
			t.Errorf("%d names are read, such as %s", len(names), names[0])
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
