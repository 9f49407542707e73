package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Scenario is one kind of load. Targets are loaded in turns.
type Scenario struct {
	Name  string
	About string
	run   func(l *Loader, ctx context.Context) error
}

// Scenarios returns all scenarios, in the order in which they run.
func Scenarios() []Scenario {
	return []Scenario{
		{"hold", "open streams that get nothing: memory for each, in new processes", (*Loader).hold},
		{"paced", "streams that get a token at a fixed rate", (*Loader).paced},
		{"one", "one such stream", (*Loader).one},
		{"burst", "streams at once whose tokens come as fast as they can", (*Loader).burst},
		{"requests", "short requests at a fixed rate", (*Loader).requests},
		{"prompts", "prompts of 1k, 32k and 128k tokens that are new", (*Loader).prompts},
		{"turn", "a conversation that is sent again with one new message", (*Loader).turn},
		{"capacity", "short requests at rising rates until they are late", (*Loader).capacity},
		{"knee", "steps of paced streams until tokens are late", (*Loader).knee},
	}
}

// defaultNames returns the scenarios that run if none are named: all but events, and the
// comparison with vLLM's frontend.
func defaultNames() []string {
	var names []string
	for _, s := range Scenarios() {
		names = append(names, s.Name)
	}
	return append(names, vllmScenario)
}

// scenarioNames returns the names that -scenarios knows.
func scenarioNames() []string { return append(defaultNames(), eventsScenario) }

// wantedScenarios returns the names in a list that commas separate; the default ones if
// it is empty.
func wantedScenarios(list string) ([]string, error) {
	known := scenarioNames()
	if list == "" {
		return defaultNames(), nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf(
				"-scenarios: %q is no scenario. Separate names by commas: %s", name, strings.Join(known, ","))
		}
	}
	return names, nil
}

// Loader runs scenarios at targets.
type Loader struct {
	Options Options
	Targets []*Target
	// Fresh starts new processes and returns targets like Targets.
	Fresh  func(context.Context) (targets []*Target, stop func(), err error)
	Client *Client
	Report Report
	Log    func(format string, args ...any)
}

// turns runs a load at each target in turns, and adds a row for each.
func (l *Loader) turns(scenario, unit string, rounds int, load func(*Target, int) (*Sample, error)) error {
	sums := make([]Sample, len(l.Targets))
	for round := range rounds {
		for i, t := range l.Targets {
			if round == 0 {
				l.Log("%s, %s, rounds in turns: %d", scenario, t.Name, rounds)
			}

			// In turns, so that a machine that slows down does so for all targets.
			s, err := load(t, round)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", scenario, t.Name, err)
			}
			sums[i].Add(s)
		}
	}
	for i, t := range l.Targets {
		l.Report.Rows = append(l.Report.Rows, newRow(scenario, t, unit, &sums[i]))
	}
	return nil
}

func (l *Loader) paced(ctx context.Context) error {
	o := l.Options
	p := Paced{Streams: o.Streams, Rate: o.Rate, Lead: o.Lead, Window: o.Window}
	name := fmt.Sprintf("%d x %g/s", o.Streams, o.Rate)
	return l.turns(name, "token", o.Rounds, func(t *Target, _ int) (*Sample, error) { return p.Run(ctx, l.Client, t) })
}

func (l *Loader) one(ctx context.Context) error {
	o := l.Options
	p := Paced{Streams: 1, Rate: o.Rate, Lead: o.Lead, Window: o.Window}
	return l.turns(fmt.Sprintf(
		"1 x %g/s",
		o.Rate), "token", o.Rounds, func(t *Target, _ int) (*Sample, error) { return p.Run(ctx, l.Client, t) })
}

func (l *Loader) burst(ctx context.Context) error {
	o := l.Options
	return l.turns(fmt.Sprintf(
		"burst, %d x %d", o.BurstStreams, o.BurstWords), "token", 2*o.Rounds, func(t *Target, _ int) (*Sample, error) {
		return burst(ctx, l.Client, t, o.BurstStreams, o.BurstWords)
	})
}

func (l *Loader) requests(ctx context.Context) error {
	o := l.Options
	r := shortRequests(o.RequestRate, o.Window)
	return l.turns(fmt.Sprintf(
		"%g requests/s", o.RequestRate), "request", o.Rounds, func(t *Target, _ int) (*Sample, error) {
		return r.Run(ctx, l.Client, t)
	})
}

// shortRequests are requests of a line at a rate, each answered by a word.
func shortRequests(rate float64, window time.Duration) Requests {
	return Requests{Rate: rate, Count: max(int(rate*window.Seconds()), 1), Text: func(i int) []string {
		return []string{fmt.Sprintf("Question %d.\n%s", i, script(1))}
	}}
}

func (l *Loader) prompts(ctx context.Context) error {
	for _, p := range []struct{ tokens, count int }{{1000, 24}, {32000, 6}, {128000, 3}} {
		if p.tokens > l.Options.MaxPrompt {
			continue
		}

		// One generator for all: each prompt is new to the caches of the engine and of the filter.
		random := rand.New(rand.NewPCG(uint64(p.tokens), 1))
		// One request after the other, the targets in turns.
		err := l.turns(fmt.Sprintf(
			"prompt of %dk", p.tokens/1000), "request", p.count, func(t *Target, _ int) (*Sample, error) {
			text := prose(random, p.tokens) + "\n" + script(1)
			return Requests{Rate: 1000, Count: 1, Text: func(int) []string { return []string{text} }}.Run(ctx,
				l.Client, t)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// turnMessages is the number of messages in the conversation of scenario turn.
const turnMessages = 400

func (l *Loader) turn(ctx context.Context) error {
	random := rand.New(rand.NewPCG(7, 7))
	tokens := min(l.Options.MaxPrompt, 200000)
	var conversation []string
	for range turnMessages {
		conversation = append(conversation, prose(random, tokens/turnMessages))
	}

	ask := func(t *Target) (*Sample, error) {
		return Requests{Rate: 1000, Count: 1, Text: func(int) []string {
			// With its capacity cut, append copies: the question must not get into the conversation.
			return append(conversation[:len(conversation):len(conversation)], "Go on.\n"+script(1))
		}}.Run(ctx, l.Client, t)
	}

	for _, t := range l.Targets {
		if _, err := ask(t); err != nil { // the first time it is new
			return err
		}
	}

	return l.turns(fmt.Sprintf(
		"turn of %dk", tokens/1000), "request", 5*l.Options.Rounds, func(t *Target, _ int) (*Sample, error) {
		// Two messages, so that the user's and the assistant's stay in turns.
		conversation = append(conversation, prose(random, 20), prose(random, 20))
		return ask(t)
	})
}

func (l *Loader) hold(ctx context.Context) error {
	o := l.Options

	// New processes for each: memory that an earlier load has freed would hide what streams need.
	for i := range l.Targets {
		targets, stop, err := l.Fresh(ctx)
		if err != nil {
			return err
		}
		t := targets[i]

		l.Log("hold, %s", t.Name)
		s, err := hold(ctx, l.Client, t, o.Held, o.Settle)
		stop()
		if err != nil {
			return fmt.Errorf("hold, %s: %w", t.Name, err)
		}

		row := newRow(fmt.Sprintf("%d open streams", o.Held), t, "stream", s)
		for _, p := range t.Procs {
			if p.Name != engineName {
				row.Note += fmt.Sprintf(" %s %.0f KiB a stream", p.Name, row.Memory[p.Name])
			}
		}

		// The figures are for a stream, not those of the column.
		row.Memory = nil
		l.Report.Rows = append(l.Report.Rows, row)
	}

	return nil
}

// kneeLatency is how late a token in a hundred may be before the load is beyond the
// knee.
const kneeLatency = 50 * time.Millisecond

// knee looks for the greatest rate of tokens at which 99 of 100 are at most
// kneeLatency late: steps of a quarter, at each target for itself. Then it loads with
// twice that, to see what it does to memory.
func (l *Loader) knee(ctx context.Context) error {
	for _, t := range l.Targets {
		best, note, err := l.findKnee(ctx, t)
		if err != nil {
			return fmt.Errorf("knee, %s: %w", t.Name, err)
		}
		row := newRow(fmt.Sprintf("knee, p99 <= %d ms", kneeLatency.Milliseconds()), t, "token", best)
		row.Note = note
		l.Report.Rows = append(l.Report.Rows, row)
	}
	return nil
}

// findKnee returns the last step before the knee of a target, and says what was beyond.
func (l *Loader) findKnee(ctx context.Context, t *Target) (best *Sample, note string, err error) {
	o := l.Options
	best, note = &Sample{}, "the steps end before the knee"
	at := 0 // streams of the best step

	for streams := o.KneeFrom; streams <= o.KneeTo; streams += max(streams/4, 1) {
		s, late, err := l.step(ctx, t, streams)
		if err != nil {
			return nil, "", err
		}
		if late {
			note = fmt.Sprintf("%d streams: p99 %.0f ms", streams, ms(Quantile(s.Latency, 0.99)))
			break
		}
		best, at = s, streams
	}

	if at == 0 {
		return best, note, nil
	}

	// Twice the knee shows whether what waits is bounded.
	beyond, _, err := l.step(ctx, t, 2*at)
	if err != nil {
		return nil, "", err
	}

	notes := []string{note, fmt.Sprintf("at %d streams:", 2*at)}
	for _, p := range t.Procs {
		if p.Name != engineName {
			notes = append(notes, fmt.Sprintf("%s %.0f MB", p.Name, float64(beyond.Usage.Memory[p.Name])/(1<<20)))
		}
	}

	if beyond.Failed > 0 {
		notes = append(notes, fmt.Sprintf("%d failed: %v", beyond.Failed, beyond.Err))
	}

	return best, strings.Join(notes, " "), nil
}

// step loads a target with streams, and reports whether tokens are late. It tries late
// ones again: the machine may have done something else.
func (l *Loader) step(ctx context.Context, t *Target, streams int) (s *Sample, late bool, err error) {
	o := l.Options
	p := Paced{Streams: streams, Rate: o.Rate, Lead: o.Lead, Window: o.KneeWindow}
	for range 2 {
		if s, err = p.Run(ctx, l.Client, t); err != nil {
			return nil, false, err
		}
		p99 := Quantile(s.Latency, 0.99)
		l.Log("knee, %s, %d streams: %.0f tokens/s, p50 %.1f ms, p99 %.1f ms, %d failed", t.Name, streams,
			float64(s.Units)/s.Time.Seconds(), ms(Quantile(s.Latency, 0.5)), ms(p99), s.Failed)
		if late = p99 > kneeLatency || s.Failed > 0; !late {
			break
		}
	}
	return s, late, nil
}
