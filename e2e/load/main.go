// Command load loads Envoy, the filter and the simulated engine, each a process of its
// own, and prints what a token and a request cost. "make load" runs it.
//
// Load is open: the engine sends tokens by a schedule that the client knows, and
// requests are due at fixed times, so what waits is measured and not left out. The same
// Envoy also passes the engine's own stream through, without the filter, in turns with
// it: the difference is what the filter adds.
//
//	go build -o bin/ ./cmd/... ./e2e/load && bin/load -scenarios paced,one -window 5s
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Options are the flags.
type Options struct {
	Streams, Held, BurstStreams, BurstWords, Rounds int
	MaxPrompt, KneeFrom, KneeTo                     int
	Rate, RequestRate, CapacityFrom, CapacityTo     float64
	Lead, Window, Settle, KneeWindow                time.Duration
	CapacityWindow                                  time.Duration
}

// add defines the flags.
func (o *Options) add(f *flag.FlagSet) {
	f.IntVar(&o.Streams, "streams", 200, "paced streams")
	f.Float64Var(&o.Rate, "rate", 50, "tokens a second of a paced stream")
	f.DurationVar(&o.Lead, "lead", time.Second, "load before a window")
	f.DurationVar(&o.Window, "window", 8*time.Second, "window that is measured")
	f.IntVar(&o.Rounds, "rounds", 2, "windows of each target")
	f.IntVar(&o.Held, "held", 500, "open streams of scenario hold")
	f.DurationVar(&o.Settle, "settle", 3*time.Second, "wait before their memory is read")
	f.IntVar(&o.BurstStreams, "burst-streams", 64, "streams of a burst")
	f.IntVar(&o.BurstWords, "burst-words", 500, "tokens of each")
	f.Float64Var(&o.RequestRate, "requests", 100, "short requests a second")
	f.Float64Var(&o.CapacityFrom, "capacity-from", 200, "requests a second of the first step towards the capacity")
	f.Float64Var(&o.CapacityTo, "capacity-to", 51200, "requests a second of the last step")
	f.DurationVar(&o.CapacityWindow, "capacity-window", 3*time.Second, "window of each step")
	f.IntVar(&o.MaxPrompt, "max-prompt", 200000, "longest prompt in tokens")
	f.IntVar(&o.KneeFrom, "knee-from", 100, "streams of the first step towards the knee")
	f.IntVar(&o.KneeTo, "knee-to", 2000, "streams of the last step")
	f.DurationVar(&o.KneeWindow, "knee-window", 2*time.Second, "window of each step")
}

// quick returns the options of a run under a minute.
func (o Options) quick() Options {
	o.Rounds, o.Window, o.Held, o.Settle = 1, 4*time.Second, 200, time.Second
	o.MaxPrompt, o.KneeTo = 32000, min(o.KneeTo, 2*o.KneeFrom)
	return o
}

// quickScenarios are those of a quick run: all but knee and capacity, whose steps take
// their time.
const quickScenarios = "hold,paced,one,burst,requests,prompts,turn"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// run loads as the flags say.
func run(ctx context.Context, args []string) error {
	var o Options
	var stack StackOptions
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	o.add(f)
	f.StringVar(&stack.Binaries, "bin", "bin", "`folder` of envoy-harmony and engine-sim")
	f.IntVar(&stack.Workers, "envoy-workers", 0, "Envoy's worker threads; 0: one per CPU")
	f.StringVar(&stack.Engine, "engine", "vllm", "the engine's `kind`")
	f.Func("set", "`KEY=VALUE` of the filter's configuration; may be repeated", func(v string) error {
		stack.Set = append(stack.Set, v)
		return nil
	})

	scenarios := f.String("scenarios", "",
		"`names` of the scenarios, separated by commas: "+strings.Join(scenarioNames(), ", ")+
			"; empty: all but "+eventsScenario)
	quick := f.Bool("quick", false, "a short run of all scenarios but knee and capacity, under a minute")
	var peers Peers
	peers.add(f)
	jsonFile := f.String("json", "", "`file` for the figures as JSON")

	if err := f.Parse(args); err != nil {
		return err
	}
	if *quick {
		o = o.quick()
		// Names that were given stay: -quick then only shortens them.
		*scenarios = cmp.Or(*scenarios, quickScenarios)
	}

	wanted, err := wantedScenarios(*scenarios)
	if err != nil {
		return err
	}
	if stack.Binaries, err = filepath.Abs(stack.Binaries); err != nil {
		return err
	}

	l := &Loader{
		Options: o, Client: NewClient(),
		Report: Report{Date: time.Now().UTC().Format(time.DateOnly), Machine: machine()}, Log: progress,
	}
	defer l.Client.Close()
	l.Fresh = startTargets(stack)
	if peers.SMG != "" {
		l.Fresh = peers.start(stack)
	}

	// What was measured before a failure took minutes, so it is printed all the same.
	failed := l.measure(ctx, peers, stack, wanted)
	if len(l.Report.Rows) == 0 {
		return failed
	}

	if *jsonFile != "" {
		failed = errors.Join(failed, l.Report.WriteJSON(*jsonFile))
	}
	failed = errors.Join(failed,
		l.Report.Table(os.Stdout), l.Report.Added(os.Stdout), l.Report.Events(os.Stdout))
	if peers.SMG != "" {
		failed = errors.Join(failed, l.Report.Ratios(os.Stdout))
		fmt.Fprint(os.Stdout, questions)
	}

	// After the tables, which have the reason of the first failure.
	if n := l.Report.Failed(); n > 0 {
		failed = errors.Join(failed, fmt.Errorf("%d streams failed", n))
	}
	return failed
}

// measure runs what is wanted. vLLM comes last, with processes of its own: its engine takes all CPUs.
func (l *Loader) measure(ctx context.Context, peers Peers, stack StackOptions, wanted []string) error {
	if err := l.Run(ctx, wanted); err != nil {
		return err
	}
	if err := l.runEvents(ctx, stack, wanted); err != nil {
		return err
	}
	return l.runVLLM(ctx, peers, stack, wanted)
}

// startTargets returns what starts a stack and returns its targets.
func startTargets(o StackOptions) func(context.Context) ([]*Target, func(), error) {
	return func(ctx context.Context) ([]*Target, func(), error) {
		s, err := Start(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		filtered, through := s.Targets()
		return []*Target{filtered, through}, s.Stop, nil
	}
}

// Run runs the scenarios whose names are wanted.
func (l *Loader) Run(ctx context.Context, wanted []string) error {
	// Others have processes of their own.
	if !slices.ContainsFunc(Scenarios(), func(s Scenario) bool { return slices.Contains(wanted, s.Name) }) {
		return nil
	}

	targets, stop, err := l.Fresh(ctx)
	if err != nil {
		return err
	}
	defer stop()
	l.Targets = targets
	for _, s := range Scenarios() {
		if slices.Contains(wanted, s.Name) {
			if err := s.run(l, ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// progress writes a line of what is being done.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().UTC().Format("15:04:05 ")+format+"\n", args...)
}

func cpus() int { return runtime.NumCPU() }
