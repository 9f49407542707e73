package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// times returns figures with results in ns/op.
func times(all map[string][]float64) figures {
	f := figures{}
	for name, ns := range all {
		for _, v := range ns {
			f.add(name, "ns/op", v)
		}
	}
	return f
}

// TestCompare checks the report. The shortest times count: other work in single rounds is
// no loss.
func TestCompare(t *testing.T) {
	before := times(map[string][]float64{"a.Same": {100, 90}, "a.Slower": {9, 5, 6}, "a.Faster": {3}, "a.Gone": {4}})
	now := times(map[string][]float64{"a.Same": {400, 102}, "a.Slower": {6, 9, 7}, "a.Faster": {1.5}, "a.New": {5}})
	now.add("cold", "ms", 3)
	var out strings.Builder
	if err := compare(&out, now, before); !errors.Is(err, errLoss) {
		t.Errorf("error %v", err)
	}
	want := `gain: a.Faster takes 50 % less: 1.5 ns, the baseline's 3 ns
LOSS: a.Slower takes 20 % longer: 6 ns, the baseline's 5 ns
new: a.New is not in the baseline
gone: a.Gone is in the baseline only
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	delete(now, "a.Slower")
	if err := compare(&out, now, before); err != nil {
		t.Errorf("without a loss: %v", err)
	}
}

// TestLosing checks that only what seems to have lost is measured again.
func TestLosing(t *testing.T) {
	all := map[string]change{
		"harmony.Unseen/json":                 {115, 100},
		"harmony.UnseenWorst/han/10KB":        {90, 100},
		"harmony.UnseenWorst/han/1000KB":      {116, 100},
		"filter/chat.Stream/answer":           {50, 100},
		"filter/responses.Stream/answer":      {120, 100},
		"filter/extproc.Token":                {117, 100},
		"filter/engine.DecodeOneToken/sglang": {100, 100},
	}
	want := []suite{
		{"harmony", []string{"UnseenWorst"}},
		{"filter/responses", []string{"Stream"}},
		{"filter/extproc", []string{"Token"}},
	}
	if diff := cmp.Diff(want, losing(all), cmp.AllowUnexported(suite{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := losing(nil); len(got) != 0 {
		t.Errorf("without results %v", got)
	}
}

func TestSummary(t *testing.T) {
	var out strings.Builder
	summary(&out, "0123456789abcdef", map[string]change{"a.X": {110, 100}, "a.Y": {80, 100}, "a.Z": {100, 100}})
	if got, want := out.String(), "3 benchmarks beside those of commit 0123456789ab: -20 % (a.Y) to +10 % (a.X)\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// TestNothingToCompare checks that a run which has compared nothing does not pass.
func TestNothingToCompare(t *testing.T) {
	b := bench{now: tree{figures: times(map[string][]float64{"a.New": {1}})}, before: &tree{figures: figures{}}}
	if err := b.compare(io.Discard); !errors.Is(err, errNothing) {
		t.Errorf("error %v", err)
	}
	b.before = nil
	if err := b.compare(io.Discard); err != nil {
		t.Errorf("without a baseline: %v", err)
	}
}
