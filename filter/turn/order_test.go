package turn

import (
	"context"
	"testing"
)

// TestOpenCalls shows that a call of a prefix that has its result is not open, where an
// earlier one of the same step is.
func TestOpenCalls(t *testing.T) {
	rc, _ := newContext()
	before, err := Extend(context.Background(), rc, nil, []Item{
		userHi, {Kind: Call, CallID: "a", Name: "f"}, {Kind: Call, CallID: "b", Name: "f"}, {Kind: Result, CallID: "b", Text: "x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if open := before.OpenCalls(); len(open) != 1 || open[0].CallID != "a" {
		t.Errorf("%+v", open)
	}
}
