package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	before := map[string]float64{"a.Same": 1, "a.Slower": 2, "a.Faster": 3, "a.Gone": 4}
	now := map[string]float64{"a.Same": 1.14, "a.Slower": 2.4, "a.Faster": 1.5, "a.New": 5}
	var out strings.Builder
	if err := compare(&out, before, now); !errors.Is(err, errLoss) {
		t.Errorf("error %v", err)
	}
	want := `gain: a.Faster takes 50 % less: 1.5 millionths of the yardstick, recorded 3
new: a.New, 5 millionths of the yardstick: record it with -update
LOSS: a.Slower takes 20 % longer: 2.4 millionths of the yardstick, recorded 2
gone: a.Gone was recorded: remove it with -update
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	delete(now, "a.Slower")
	if err := compare(&out, before, now); err != nil {
		t.Errorf("without a loss: %v", err)
	}
}

// TestRatios checks that a slower machine does not change a ratio, nor rounds with
// other work beside them.
func TestRatios(t *testing.T) {
	f := figures{}
	for _, slower := range []float64{5, 4, 9} {
		f.add("p.X", "ns/op", 100*slower)
		f.add(yardstickName, "ns/op", 50*slower)
	}
	f.add(yardstickName, "ns/op", 1000)
	f.add("cold", "ms", 3)
	path := filepath.Join(t.TempDir(), "ratios.json")
	if err := writeRatios(path, f.ratios()); err != nil {
		t.Fatal(err)
	}
	got, err := readRatios(path)
	if diff := cmp.Diff(map[string]float64{"p.X": 2e6}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestYardstick(t *testing.T) {
	if ns, err := yardstick(); err != nil || ns <= 0 {
		t.Errorf("%v ns, %v", ns, err)
	}
}
