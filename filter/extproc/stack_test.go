package extproc

import "testing"

// The frames are on the stack, where the compiler could as well put them on the heap.
func TestFramesAreOnTheStack(t *testing.T) {
	if n := testing.AllocsPerRun(10, func() {
		stackToHandle(true)
		stackToServe(true)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
