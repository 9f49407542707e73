package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
goarch: amd64
pkg: github.com/envoy-harmony/envoy-harmony/harmony
cpu: a fast one
BenchmarkUnseen/prose         	     100	   2000000 ns/op	  50.00 MB/s	       0 B/op	       0 allocs/op
BenchmarkRenderCold           	     222	   5128841 ns/op	    104089 tokens	 1389791 B/op	    5111 allocs/op
BenchmarkUnseenWorst/random-letters/10KB 	      86	   1317674 ns/op
Benchmark output that is no result
--- BENCH: BenchmarkRenderCold
    bench_test.go:1: BenchmarkRenderCold 1 2 ns/op
PASS
`

func TestAddOutput(t *testing.T) {
	got := figures{}
	if err := got.addOutput("harmony", output, 0.5); err != nil {
		t.Fatal(err)
	}
	want := figures{
		"harmony.Unseen/prose":                    {"ns/op": {1e6}, "MB/s": {100}, "B/op": {0}, "allocs/op": {0}},
		"harmony.RenderCold":                      {"ns/op": {2564420.5}, "tokens": {104089}, "B/op": {1389791}, "allocs/op": {5111}},
		"harmony.UnseenWorst/random-letters/10KB": {"ns/op": {658837}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"random-letters"}, got.worstKinds()); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// TestHead checks that the table has its date, whatever the time zone.
func TestHead(t *testing.T) {
	east := time.Date(2026, 11, 27, 1, 0, 0, 0, time.FixedZone("east", 3*3600))
	if got := head(east); !strings.HasPrefix(got, "2026-11-26; ") || !strings.Contains(got, " CPUs, go") {
		t.Error(got)
	}
}

func TestAddOutputErrors(t *testing.T) {
	for _, line := range []string{"BenchmarkX 10 abc ns/op", "BenchmarkX 10 5 ns/op 7"} {
		if err := (figures{}).addOutput("p", line, 1); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}

func TestMedian(t *testing.T) {
	f := figures{}
	for _, c := range []struct{ add, want float64 }{{9, 9}, {1, 5}, {2, 2}, {100, 5.5}} {
		f.add("a.X", "u", c.add)
		if got, ok := f.median("a.X", "u"); !ok || got != c.want {
			t.Errorf("%v: median %v, want %v", f, got, c.want)
		}
	}
	f.add("a.Y", "u", 7)
	f.add("b.Z", "u", 8)
	if got, ok := f.most("u", "a."); !ok || got != 7 {
		t.Errorf("most %v", got)
	}
	if _, ok := f.median("a.Z", "u"); ok {
		t.Error("median of a missing benchmark")
	}
	if _, ok := f.most("u", "c."); ok {
		t.Error("most of missing benchmarks")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0731: "0.0731", 0.5: "0.5", 2.456: "2.46", 20: "20", 31.26: "31.3", 166.4: "166", 2000: "2000", 1234.5: "1234"} {
		if got := number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// everything returns figures for all rows.
func everything(value float64) figures {
	f := figures{}
	for _, kind := range []string{"prose", "code", "json", "multilingual"} {
		f.add("harmony.Unseen/"+kind, "MB/s", 40)
		f.add("harmony.Unseen/"+kind, "allocs/op", 0)
	}
	for size, ns := range map[string]float64{"10KB": 1e6, "100KB": 50e6, "1000KB": 200e6} {
		f.add(worst+"han/"+size, "ns/op", ns)
	}
	for _, limits := range [][]upTo{library, service} {
		for _, u := range limits {
			f.add(u.benchmark, u.unit, value/u.factor)
		}
	}
	f.add("filter/extproc.Token", "allocs/op", 7)
	return f
}

func TestRows(t *testing.T) {
	table, err := rows(everything(40))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]row{}
	for _, r := range table {
		lines[r.what] = r
	}
	for _, want := range []row{
		{"encode prose, generated", "40 MB/s", "", "", math.NaN()},
		{"encode han: 10 KB, 100 KB, 1 MB", "1, 50, 200 ms (x50.0, x4.0)", "-, 25, 400 ms", "20 ms/MB", 0.5},
		{"the greatest growth for ten times the input", "x50.0", "x20", "", 0.4},
		{"parser: token, delta, channel, recipient", "40 ns", "15 ns", "", 0.375},
		{"parser: header token", "40 ns", "500 ns", "100 ns", 12.5},
		{"render 1,000 messages, 20 tools, cold", "40 ms", "3 ms", "", 0.075},
		{"allocations, encode and parse, warm", "0", "0", "0", 1},
		{"allocations of a token, filter and its parts", "7", "0", "0", 0},
	} {
		got := lines[want.what]
		if math.IsNaN(want.ratio) == math.IsNaN(got.ratio) && math.IsNaN(got.ratio) {
			want.ratio, got.ratio = 0, 0
		}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

// TestRowsNeedsAll removes each figure in turn: a benchmark that is renamed
// must not silently disappear from the table.
func TestRowsNeedsAll(t *testing.T) {
	for name, units := range everything(1) {
		for unit := range units {
			if unit == "allocs/op" && name != "filter/extproc.Request" {
				continue
			}
			f := everything(1)
			delete(f[name], unit)
			if _, err := rows(f); err == nil {
				t.Errorf("a table without %s of %s", unit, name)
			}
		}
	}
}

func TestWrite(t *testing.T) {
	var b strings.Builder
	if err := write(&b, []row{{"quick", "8 µs", "16 µs", "1 µs", 2}, {"slow", "100 ns", "51 ns", "", 0.51}, {"free", "1", "", "", math.NaN()}}); err != nil {
		t.Fatal(err)
	}
	want := `| what  | measured | must  | ratio       | aim  |
| ----- | -------- | ----- | ----------- | ---- |
| quick | 8 µs     | 16 µs | 2           | 1 µs |
| slow  | 100 ns   | 51 ns | 0.51 missed |      |
| free  | 1        |       |             |      |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
