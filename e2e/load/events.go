package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Engines can send several tokens in an event (--stream-interval of vLLM and SGLang), and
// the filter can read their answers less often (loopback_coalescing). Both trade CPU for
// smoothness. This scenario measures what each costs, in one table.

// eventsScenario is its name. It runs only if it is named: it takes minutes, and answers
// a question of its own.
const eventsScenario = "events"

// tokensAnEvent are the numbers that are compared.
var tokensAnEvent = []int{1, 2, 4, 8}

// eventTargets are the stacks that are compared, as the engine is asked and as the filter
// reads; the first has the defaults.
var eventTargets = []struct{ name, engine, coalescing string }{
	{"HTTP, 2 ms", "vllm", "2ms"},
	{"HTTP, 1 ms", "vllm", "1ms"},
	{"HTTP, 5 ms", "vllm", "5ms"},
	{"gRPC, 2 ms", "sglang-grpc", "2ms"},
}

// runEvents runs the scenario, if it is wanted.
func (l *Loader) runEvents(ctx context.Context, o StackOptions, wanted []string) error {
	if !slices.Contains(wanted, eventsScenario) {
		return nil
	}
	targets, stop, err := startEvents(ctx, o)
	if err != nil {
		return err
	}
	defer stop()

	l.Targets = targets
	for _, tokens := range tokensAnEvent {
		if err := l.events(ctx, tokens); err != nil {
			return err
		}
	}
	return nil
}

// startEvents starts a stack for each way to read, and returns them and Envoy alone.
func startEvents(ctx context.Context, o StackOptions) (targets []*Target, stop func(), err error) {
	starts := make([]func() (*Stack, error), 0, len(eventTargets))
	for _, each := range eventTargets {
		own := o
		own.Engine = each.engine
		own.Set = append(slices.Clone(o.Set), "loopback_coalescing="+each.coalescing)
		starts = append(starts, func() (*Stack, error) { return Start(ctx, own) })
	}

	stacks, stop, err := startAll(starts...)
	if err != nil {
		return nil, nil, err
	}
	for i, s := range stacks {
		filtered, _ := s.Targets()
		filtered.Name = eventTargets[i].name
		targets = append(targets, filtered)
	}

	_, through := stacks[0].Targets()
	return append(targets, through), stop, nil
}

// events loads with paced streams that get so many tokens in an event.
func (l *Loader) events(ctx context.Context, tokens int) error {
	o := l.Options
	p := Paced{Streams: o.Streams, Rate: o.Rate, TokensAnEvent: tokens, Lead: o.Lead, Window: o.Window}

	first := len(l.Report.Rows)
	name := fmt.Sprintf("%d x %g/s, %d an event", o.Streams, o.Rate, tokens)
	err := l.turns(name, "token", o.Rounds, func(t *Target, _ int) (*Sample, error) { return p.Run(ctx, l.Client, t) })

	for i := first; i < len(l.Report.Rows); i++ {
		l.Report.Rows[i].TokensAnEvent = tokens
	}
	return err
}

// Events writes the rows of the scenario as a table in Markdown; nothing if there are
// none. A cell has the CPU of filter and Envoy, and how late tokens are.
func (r *Report) Events(w io.Writer) error {
	var sizes []int
	var targets []string
	cells := map[string]map[int]string{}

	for i := range r.Rows {
		row := &r.Rows[i]
		size := row.TokensAnEvent
		if size == 0 {
			continue
		}
		if !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
		if cells[row.Target] == nil {
			targets, cells[row.Target] = append(targets, row.Target), map[int]string{}
		}
		late := number(row.P50, 0) + ", " + number(row.P99, 0)
		cells[row.Target][size] = number(row.own(), 1) + "; " + late
	}
	if len(sizes) == 0 {
		return nil
	}

	fmt.Fprintln(w, "CPU of filter and Envoy in µs a token; ms from when a token was due to its arrival, p50 and p99:")
	fmt.Fprintln(w, "| tokens an event | "+strings.Join(targets, " | ")+" |")
	fmt.Fprintln(w, "|"+strings.Repeat("---|", 1+len(targets)))

	for _, size := range sizes {
		line := []string{strconv.Itoa(size)}
		for _, t := range targets {
			line = append(line, cells[t][size])
		}
		if _, err := fmt.Fprintln(w, "| "+strings.Join(line, " | ")+" |"); err != nil {
			return err
		}
	}
	return nil
}
