package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"
)

// Row is a line of the report: one scenario at one target.
type Row struct {
	Scenario string `json:"scenario"`
	Target   string `json:"target"`

	// Units are tokens or requests, as Unit says.
	Unit  string  `json:"unit"`
	Units int     `json:"units"`
	Rate  float64 `json:"units_per_second,omitempty"`
	// TokensAnEvent is set in scenario events.
	TokensAnEvent int `json:"tokens_an_event,omitempty"`

	// What processes use, by their names. Of held streams, Memory is that of each.
	CPU    map[string]float64 `json:"cpu_us_per_unit,omitempty"`
	Memory map[string]float64 `json:"rss_kib,omitempty"`

	// Latency since the token was due, or the request; and the time to its first token.
	P50     float64 `json:"latency_p50_ms,omitempty"`
	P99     float64 `json:"latency_p99_ms,omitempty"`
	First50 float64 `json:"first_p50_ms,omitempty"`
	First99 float64 `json:"first_p99_ms,omitempty"`

	Failed int    `json:"failed,omitempty"`
	Note   string `json:"note,omitempty"`
}

// newRow makes the row of a sample.
func newRow(scenario string, t *Target, unit string, s *Sample) Row {
	r := Row{
		Scenario: scenario, Target: t.Name, Unit: unit, Units: s.Units, Failed: s.Failed,
		CPU: map[string]float64{}, Memory: map[string]float64{},
	}
	if s.Time > 0 {
		r.Rate = float64(s.Units) / s.Time.Seconds()
	}
	for name, cpu := range s.Usage.CPU {
		r.CPU[name] = float64(cpu.Microseconds()) / float64(max(s.Units, 1))
	}
	for name, bytes := range s.Usage.Memory {
		r.Memory[name] = float64(bytes) / 1024
	}
	r.P50, r.P99 = ms(Quantile(s.Latency, 0.5)), ms(Quantile(s.Latency, 0.99))
	if s.Failed > 0 {
		r.Note = fmt.Sprintf("%d failed: %v", s.Failed, s.Err)
	}
	r.First50, r.First99 = ms(Quantile(s.First, 0.5)), ms(Quantile(s.First, 0.99))
	return r
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// own returns the CPU time of what stands between client and engine.
func (r *Row) own() (sum float64) {
	for name, us := range r.CPU {
		if name != clientName && name != engineName {
			sum += us
		}
	}
	return sum
}

// The processes that are not measured for their own sake.
const (
	clientName = "client"
	engineName = "engine"
)

// Report is the outcome of a run.
type Report struct {
	Date    string `json:"date"`
	Machine string `json:"machine"`
	Rows    []Row  `json:"rows"`
}

// WriteJSON writes the report to a file.
func (r *Report) WriteJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // figures
}

// Failed returns how many streams ended with an error.
func (r *Report) Failed() (n int) {
	for i := range r.Rows {
		n += r.Rows[i].Failed
	}
	return n
}

// Table writes the report as a table. Ratios are to the first row of the scenario.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s; %s\n", r.Date, r.Machine)
	fmt.Fprintln(w, "CPU is in µs for each unit, by process; own: all but client and engine. ms: from when a token, "+
		"or a request, was due.")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\ttarget\tunit\ta second\tfilter\tEnvoy\tother\town\tengine\tclient\tp50 ms\tp99 ms\t"+
		"first p50\tfirst p99\tfilter MB\tEnvoy MB\t note\t")
	for i := range r.Rows {
		r.Rows[i].write(t)
	}
	return t.Flush()
}

func (r *Row) write(w io.Writer) {
	// Of a peer, whose processes have other names.
	other := r.own() - r.CPU["filter"] - r.CPU["Envoy"]
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t", r.Scenario, r.Target, r.Unit, number(r.Rate, 0))
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t", number(r.CPU["filter"], 1), number(r.CPU["Envoy"], 1), number(other, 1),
		number(r.own(), 1))
	fmt.Fprintf(w, "%s\t%s\t", number(r.CPU[engineName], 1), number(r.CPU[clientName], 1))
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t", number(r.P50, 2), number(r.P99, 2), number(r.First50, 2), number(r.First99, 2))
	fmt.Fprintf(w, "%s\t%s\t %s\t\n", number(r.Memory["filter"]/1024, 1), number(r.Memory["Envoy"]/1024, 1), r.Note)
}

// number formats a figure; – stands for none.
func number(v float64, digits int) string {
	// A figure that would be printed as 0 is one that was not measured.
	if v < 0.0001 && v > -0.0001 {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// Added writes what each target adds to its scenario's row of Envoy alone.
func (r *Report) Added(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "more than Envoy alone\ttarget\town CPU µs\tp50 ms\tp99 ms\tfirst p50\tfirst p99\t")
	alone := map[string]*Row{}
	for i := range r.Rows {
		if r.Rows[i].Target == aloneName {
			alone[r.Rows[i].Scenario] = &r.Rows[i]
		}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		base := alone[row.Scenario]
		// Held streams have memory alone, and a target that keeps no bound has no figures.
		if base == nil || base == row || len(row.CPU) == 0 || len(base.CPU) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.Scenario, row.Target, number(row.own()-base.own(), 1),
			number(row.P50-base.P50, 2),
			number(row.P99-base.P99, 2), number(row.First50-base.First50, 2), number(row.First99-base.First99, 2))
	}
	return t.Flush()
}

// Ratios writes what each target needs beside the first one of its scenario.
func (r *Report) Ratios(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ratio to the first\ttarget\town CPU\tp50\tp99\tfirst p50\tunits a second\t")
	var first *Row
	for i := range r.Rows {
		row := &r.Rows[i]
		// The rows of a scenario follow one another, ours first.
		if first == nil || first.Scenario != row.Scenario {
			first = row
			continue
		}
		if len(row.CPU) == 0 { // memory only
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.Scenario, row.Target, ratio(row.own(), first.own()),
			ratio(row.P50, first.P50),
			ratio(row.P99, first.P99), ratio(row.First50, first.First50), ratio(row.Rate, first.Rate))
	}
	return t.Flush()
}

// ratio formats a/b; – where one is missing.
func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "–"
	}
	return strconv.FormatFloat(a/b, 'f', 2, 64)
}
