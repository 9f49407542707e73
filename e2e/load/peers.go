package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
)

// Peers are other programs that make Chat Completions of an engine's tokens, and what
// of ours they are compared with.
type Peers struct {
	// SMG is the binary of smg, of the package from PyPI; "": none.
	SMG string
	// Vocabulary is the folder of o200k_base.tiktoken, which smg would download.
	Vocabulary string
	// VLLM is the script that serves vLLM, e2e/engines/run.sh; "": none.
	VLLM string
}

// add defines the flags.
func (p *Peers) add(f *flag.FlagSet) {
	f.StringVar(&p.SMG, "smg", "", "smg's `binary`: compare with it")
	f.StringVar(&p.VLLM, "vllm", "", "`script` that serves vLLM: compare with its frontend")
	f.StringVar(&p.Vocabulary, "vocabulary", "", "`folder` of o200k_base.tiktoken for smg")
}

// smgName and smgAfterEnvoy are the targets of smg.
const (
	smgName       = "smg"
	smgAfterEnvoy = "Envoy + smg"
)

// questions says which rows answer which question: what to compare with depends on
// whether there is an Envoy anyway.
const questions = `Which row answers which question:
  "We have an Envoy. What does gpt-oss cost behind it?"     filter, or filter, gRPC, beside Envoy + smg
  "We have no Envoy. What does gpt-oss cost?"               filter beside smg
  "What is Envoy's own part?"                               Envoy alone: it passes the engine's stream through
`

// start starts the stack, ours with the same engine API as smg, smg with and without an
// Envoy before it, and returns their targets. Each has a simulated engine of its own.
func (p Peers) start(o StackOptions) func(context.Context) ([]*Target, func(), error) {
	return func(ctx context.Context) ([]*Target, func(), error) {
		framed := o
		framed.Engine = "sglang-grpc"

		stacks, stop, err := startAll(
			func() (*Stack, error) { return Start(ctx, o) },
			func() (*Stack, error) { return Start(ctx, framed) },
			// Two processes: what the one has seen of a conversation must not help the other.
			func() (*Stack, error) { return p.startSMG(ctx, o, false) },
			func() (*Stack, error) { return p.startSMG(ctx, o, true) },
		)
		if err != nil {
			return nil, nil, err
		}

		filtered, through := stacks[0].Targets()
		overGRPC, _ := stacks[1].Targets()
		overGRPC.Name = "filter, gRPC"
		// Ours comes first: the ratios are to it.
		return []*Target{filtered, overGRPC, stacks[3].smg(), stacks[2].smg(), through}, stop, nil
	}
}

// startAll starts stacks. If one does not start, it stops the others.
func startAll(starts ...func() (*Stack, error)) (stacks []*Stack, stop func(), err error) {
	stop = func() {
		for _, s := range stacks {
			s.Stop()
		}
	}
	for _, start := range starts {
		s, err := start()
		if err != nil {
			stop()
			return nil, nil, err
		}
		stacks = append(stacks, s)
	}
	return stacks, stop, nil
}

// startSMG starts smg as its documentation says for engines with gRPC, with default
// settings, and an engine of its own; and before it, if asked for, the Envoy of our
// stacks with a plain route in place of the filter.
func (p Peers) startSMG(ctx context.Context, o StackOptions, withEnvoy bool) (*Stack, error) {
	s, err := newStack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := p.runSMG(ctx, s, o); err != nil {
		return nil, s.failed(smgName, err)
	}
	if !withEnvoy {
		return s, nil
	}

	if err := s.startPlainEnvoy(ctx, o); err != nil {
		return nil, s.failed(smgName, err)
	}
	if err := awaitTarget(ctx, s.smg()); err != nil {
		return nil, s.failed(smgName, err)
	}
	return s, nil
}

func (p Peers) runSMG(ctx context.Context, s *Stack, o StackOptions) error {
	if err := s.startEngine(ctx, o); err != nil {
		return err
	}

	port, err := freePort(ctx)
	metrics, err2 := freePort(ctx)
	// smg would download its vocabulary; the variable names a folder that has it.
	if err := errors.Join(err, err2, os.Setenv("TIKTOKEN_ENCODINGS_BASE", p.Vocabulary)); err != nil {
		return err
	}
	_, address, err := net.SplitHostPort(s.SimURL[len("http://"):])
	if err != nil {
		return err
	}

	s.URL = "http://127.0.0.1:" + port
	// A port of its own for its metrics: the default one may be in use, and smg would not start.
	s.filter, err = s.run(smgName, p.SMG, "launch", "--worker-urls", "grpc://127.0.0.1:"+address,
		"--host", "127.0.0.1", "--port", port, "--prometheus-host", "127.0.0.1", "--prometheus-port", metrics)
	if err != nil {
		return err
	}
	return awaitTarget(ctx, s.smg())
}

// startPlainEnvoy puts an Envoy without the filter before what answers at the stack's
// URL, which is then Envoy's.
func (s *Stack) startPlainEnvoy(ctx context.Context, o StackOptions) error {
	// As if smg were an engine with HTTP: the cluster has the settings that such an engine's has.
	o.Engine = "vllm"
	behind := &Stack{Dir: s.Dir, SimURL: s.URL}
	generated, err := behind.bootstrap(ctx, o)
	if err != nil {
		return err
	}
	bootstrap, err := plain(generated)
	if err != nil {
		return err
	}
	return s.startEnvoy(ctx, bootstrap, o)
}

// smg returns the target of a stack of smg.
func (s *Stack) smg() *Target {
	t := &Target{
		Name: smgName, URL: s.URL + chatPath, Body: chatBody, Key: contentKey,
		Procs: []Process{s.filter, s.Engine},
	}
	if s.envoy.PID != 0 {
		t.Name, t.Procs = smgAfterEnvoy, append(t.Procs, s.envoy)
	}
	return t
}

// freePort returns a port that nothing used just now.
func freePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
