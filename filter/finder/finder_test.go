package finder_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/finder"
)

// Example finds words, the longest of those that end at one byte.
func Example() {
	f := finder.New([]string{"he", "she", "hers"})
	at := finder.State(0)
	for i, c := range []byte("ushers") {
		at, _ = f.Move(at, c)
		if m := f.Match(at); m.Length > 0 {
			fmt.Println(i, m.Word)
		}
	}
	fmt.Println(f.Begun(at), f.Longest())
	// Output:
	// 3 1
	// 5 2
	// 4 4
}

// TestMoves shows that a text costs at most two moves a byte, and no memory, however many
// words there are and however alike they and the text are.
func TestMoves(t *testing.T) { // not parallel: it counts allocations
	const words = 64
	alike, fan := make([]string, 0, words), make([]string, 0, words)
	for i := range words {
		alike = append(alike, strings.Repeat(" ", 64+i)+"x")
		fan = append(fan, "aa"+string(rune('0'+i)))
	}
	text := []byte(strings.Repeat(strings.Repeat(" ", 200)+"aaa", 100))
	for name, words := range map[string][]string{"alike": alike, "many children": fan} {
		f := finder.New(words)
		moves := 0
		search := func() {
			at := finder.State(0)
			moves = 0
			for _, c := range text {
				var n int
				at, n = f.Move(at, c)
				moves += n
			}
		}
		if allocated := testing.AllocsPerRun(10, search); allocated > 0 || moves > 2*len(text) {
			t.Errorf("%s: %d moves for %d bytes, %v allocations", name, moves, len(text), allocated)
		}
	}
}
