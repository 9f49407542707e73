package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// row is a line of the table.
type row struct {
	what     string
	measured string
	must     string
	aim      string
	// ratio is must / measured; NaN if there is no limit.
	ratio float64
}

var suites = []suite{
	{"harmony", []string{"Unseen", "UnseenWorst", "ParserToken", "ParserHeader", "RenderCold", "RenderLastMessageNew"}},
	{"filter/engine", []string{"DecodeOneToken"}},
	{"filter/chat", []string{"Stream"}},
	{"filter/responses", []string{"Stream"}},
	{"filter/extproc", []string{"Token", "Request", "AgentTurn"}},
}

// worst is the prefix of the names of the benchmarks with input that is hard to
// encode.
const worst = "harmony.UnseenWorst/"

// upTo describes a row whose value must not exceed a limit. The row shows the
// benchmark's value in unit, multiplied by factor, with the unit shown.
type upTo struct {
	what      string
	benchmark string
	unit      string
	factor    float64
	shown     string
	// must is 0 if there is no limit.
	must float64
	aim  string
}

var library = []upTo{
	{"cold start, CPU", "cold", "ms", 1, "ms", 60, "1 ms"},
	{"cold start, peak memory", "cold", "MB", 1, "MB", 35, ""},
	{"vocabulary in the binary", "vocabulary", "MB", 1, "MB", 0, "10 MB"},
	{"parser: token, delta, channel, recipient", "harmony.ParserToken/tolerant", "ns/op", 1, "ns", 15, ""},
	{"the same, strict", "harmony.ParserToken/strict", "ns/op", 1, "ns", 15, ""},
	{"parser: header token", "harmony.ParserHeader/tolerant", "ns/op", 1, "ns", 500, "100 ns"},
	{"the same, strict", "harmony.ParserHeader/strict", "ns/op", 1, "ns", 500, "100 ns"},
	{"render 1,000 messages, 20 tools, cold", "harmony.RenderCold", "ns/op", 1e-6, "ms", 3, ""},
	{"the same, all but the last seen before", "harmony.RenderLastMessageNew", "ns/op", 1e-6, "ms", 0.2, ""},
}

var service = []upTo{
	{"filter: an Envoy message with one token, chat", "filter/extproc.Token", "ns/op", 1, "ns", 0, ""},
	{"engine: an event of SGLang to its token", "filter/engine.DecodeOneToken/sglang", "ns/op", 1, "ns", 0, ""},
	{"engine: an event of vLLM to its token", "filter/engine.DecodeOneToken/vllm", "ns/op", 1, "ns", 0, ""},
	{"chat: a token to its chunk, answer", "filter/chat.Stream/answer", "ns/op", 1, "ns", 0, ""},
	{"the same, reasoning", "filter/chat.Stream/reasoning", "ns/op", 1, "ns", 0, ""},
	{"the same, arguments of a call", "filter/chat.Stream/arguments", "ns/op", 1, "ns", 0, ""},
	{"responses: a token to its event, answer", "filter/responses.Stream/answer", "ns/op", 1, "ns", 0, ""},
	{"filter: a request of 41 messages seen before", "filter/extproc.Request", "ns/op", 1e-3, "µs", 0, ""},
	{"its allocations", "filter/extproc.Request", "allocs/op", 1, "", 0, ""},
	{
		"filter: a turn of 200,000 tokens seen before, without gRPC",
		"filter/extproc.AgentTurn", "ns/op", 1e-6, "ms", 0, "",
	},
}

func (u upTo) row(f figures) (row, error) {
	v, ok := f.median(u.benchmark, u.unit)
	if !ok {
		return row{}, fmt.Errorf("nothing measured %s of %s", u.unit, u.benchmark)
	}

	r := row{u.what, strings.TrimSpace(number(v*u.factor) + " " + u.shown), "", u.aim, math.NaN()}

	if u.must > 0 {
		r.must, r.ratio = number(u.must)+" "+u.shown, u.must/(v*u.factor)
	}
	return r, nil
}

// rows returns the rows of the table.
func rows(f figures) ([]row, error) {
	var table []row
	for _, kind := range []string{"prose", "code", "json", "multilingual"} {
		v, ok := f.median("harmony.Unseen/"+kind, "MB/s")
		if !ok {
			return nil, fmt.Errorf("nothing measured how fast %s is encoded", kind)
		}

		table = append(table, row{"encode " + kind + ", generated", number(v) + " MB/s", "", "", math.NaN()})
	}

	// The worst kinds have a row each, and the worst growth of all is the row after them.
	greatest := 0.0
	for _, kind := range f.worstKinds() {
		var ms [3]float64
		for i, size := range []string{"10KB", "100KB", "1000KB"} {
			v, ok := f.median(worst+kind+"/"+size, "ns/op")
			if !ok {
				return nil, fmt.Errorf("nothing measured %s of %s", size, kind)
			}
			ms[i] = v / 1e6
		}

		// Both steps of ten times count: a quadratic cost may show only in the last.
		greatest = max(greatest, ms[1]/ms[0], ms[2]/ms[1])

		// 10 KB has no limit and shows the growth only. Of the other two, the ratio is the worse
		// one.
		table = append(table, row{
			"encode " + kind + ": 10 KB, 100 KB, 1 MB",
			fmt.Sprintf("%s, %s, %s ms (x%.1f, x%.1f)",
				number(ms[0]), number(ms[1]), number(ms[2]), ms[1]/ms[0], ms[2]/ms[1]),
			"-, 25, 400 ms", "20 ms/MB", min(25/ms[1], 400/ms[2]),
		})
	}

	table = append(table, row{
		"the greatest growth for ten times the input", fmt.Sprintf("x%.1f", greatest), "x20", "", 20 / greatest,
	})
	for _, group := range []struct {
		limits      []upTo
		allocations string
		prefixes    []string
	}{
		{library, "allocations, encode and parse, warm", []string{"harmony.Unseen", "harmony.Parser"}},
		{service, "allocations of a token, filter and its parts", []string{
			"filter/extproc.Token", "filter/engine.DecodeOneToken", "filter/chat.Stream", "filter/responses.Stream",
		}},
	} {
		for _, u := range group.limits {
			r, err := u.row(f)
			if err != nil {
				return nil, err
			}
			table = append(table, r)
		}

		n, ok := f.most("allocs/op", group.prefixes...)
		if !ok {
			return nil, fmt.Errorf("nothing measured %s", group.allocations)
		}
		table = append(table, none(group.allocations, n))
	}

	return table, nil
}

// none returns the row of a count that must be 0. Its ratio is 1 or 0.
func none(what string, n float64) row {
	r := row{what, number(n), "0", "0", 0}
	if n == 0 {
		r.ratio = 1
	}
	return r
}

// number formats v with three significant digits, or with all digits of a
// longer integer.
func number(v float64) string {
	if v == 0 {
		return "0"
	}

	// Of three significant digits, as many are behind the point as are not before it.
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	s := strconv.FormatFloat(v, 'f', max(0, digits), 64)

	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// write writes the table as aligned Markdown.
func write(w io.Writer, table []row) error {
	cells := make([][5]string, 0, 2+len(table))
	cells = append(cells, [5]string{"what", "measured", "must", "ratio", "aim"}, [5]string{})
	for _, r := range table {
		ratio := ""
		switch {
		case math.IsNaN(r.ratio):
		case r.ratio < 1:
			ratio = fmt.Sprintf("%.2f missed", r.ratio)
		default:
			ratio = number(r.ratio)
		}
		cells = append(cells, [5]string{r.what, r.measured, r.must, ratio, r.aim})
	}

	var width [5]int
	for _, line := range cells {
		for i, c := range line {
			// Columns count characters: µ has two bytes.
			width[i] = max(width[i], len([]rune(c)))
		}
	}

	for i := range cells[1] {
		cells[1][i] = strings.Repeat("-", width[i])
	}

	for _, line := range cells {
		var b strings.Builder
		for i, c := range line {
			b.WriteString("| " + c + strings.Repeat(" ", width[i]-len([]rune(c))+1))
		}
		if _, err := fmt.Fprintln(w, b.String()+"|"); err != nil {
			return err
		}
	}
	return nil
}
