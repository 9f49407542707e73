package write

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

func TestUsagePerTurn(t *testing.T) {
	t.Parallel()
	const unknown = engine.Unknown
	for _, c := range []struct {
		name  string
		usage usage
		want  string // in, cached, out, tools; each total and list
	}{
		{"one", usage{turns: []turnUsage{{10, 4, 3, 1}}}, "10 [10] 4 [4] 3 [3] 0 [0]"},
		{"cached not reported", usage{turns: []turnUsage{{10, unknown, 3, 1}}}, "10 [10] 0 [0] 3 [3] 0 [0]"},
		{"tools", usage{turns: []turnUsage{{10, 0, 3, 1}, {20, 12, 5, 0}, {27, unknown, 1, 0}}}, "57 [10,20,27] 12 [0,12,0] 9 [3,5,1] 9 [0,7,2]"},
		{"shorter", usage{turns: []turnUsage{{10, 0, 3, 1}, {12, 0, 5, 0}}}, "22 [10,12] 0 [0,0] 8 [3,5] 0 [0,0]"},
		{"several requests", usage{turns: []turnUsage{{10, 1, 3, 0}, {20, 12, 5, 2}}, earlier: 1}, "20 [10,20] 12 [1,12] 5 [3,5] 7 [0,7]"},
	} {
		written := gjson.ParseBytes(c.usage.append(nil, true))
		in, out := written.Get("input_tokens_details"), written.Get("output_tokens_details")
		got := fmt.Sprint(
			written.Get("input_tokens"), " ", in.Get("input_tokens_per_turn"), " ", in.Get("cached_tokens"), " ", in.Get("cached_tokens_per_turn"), " ",
			written.Get("output_tokens"), " ", out.Get("output_tokens_per_turn"), " ", out.Get("tool_output_tokens"), " ", out.Get("tool_output_tokens_per_turn"))
		if got != c.want || written.Get("total_tokens").Int() != written.Get("input_tokens").Int()+written.Get("output_tokens").Int() {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if plain := string(c.usage.append(nil, false)); strings.Contains(plain, "turn") || strings.Contains(plain, "tool") {
			t.Errorf("%s: not asked for: %s", c.name, plain)
		}
	}
}

// TestResumedUsage shows that a usage goes on from that of a response object.
func TestResumedUsage(t *testing.T) {
	t.Parallel()
	want := usage{turns: []turnUsage{{input: 10, cached: 0, output: 3}, {input: 20, cached: 12, output: 5}}, earlier: 2}
	object := append(append([]byte(`{"usage":`), (&usage{turns: want.turns}).append(nil, true)...), '}')
	same := cmp.AllowUnexported(usage{}, turnUsage{})
	if diff := cmp.Diff(want, resumedUsage(object), same); diff != "" {
		t.Errorf("per turn (-want +got):\n%s", diff)
	}
	want = usage{turns: []turnUsage{{input: 30, cached: 12, output: 8}}, earlier: 1}
	object = append(append([]byte(`{"usage":`), (&usage{turns: resumedUsage(object).turns}).append(nil, false)...), '}')
	if diff := cmp.Diff(want, resumedUsage(object), same); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	for _, object := range []string{`{}`, `{"usage":null}`, `{"usage":{"input_tokens":1}}`, `x`} {
		if u := resumedUsage([]byte(object)); len(u.turns) != 0 || u.earlier != 0 {
			t.Errorf("%s: %+v", object, u)
		}
	}
}
