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

// start starts the stack, ours with the same engine API as smg, and smg, and returns
// their targets. Each has a simulated engine of its own.
func (p Peers) start(o StackOptions) func(context.Context) ([]*Target, func(), error) {
	return func(ctx context.Context) (targets []*Target, stop func(), err error) {
		var stops []func()
		stop = func() {
			for _, s := range stops {
				s()
			}
		}

		starts := []func() (*Stack, error){
			func() (*Stack, error) { return Start(ctx, o) },
			func() (*Stack, error) {
				framed := o
				framed.Engine = "sglang-grpc"
				return Start(ctx, framed)
			},
			func() (*Stack, error) { return p.startSMG(ctx, o) },
		}

		stacks := make([]*Stack, len(starts))
		for i, start := range starts {
			if stacks[i], err = start(); err != nil {
				stop()
				return nil, nil, err
			}
			stops = append(stops, stacks[i].Stop)
		}

		filtered, through := stacks[0].Targets()
		framed, _ := stacks[1].Targets()
		framed.Name = "filter, gRPC"
		// Ours comes first: the ratios are to it.
		return []*Target{filtered, framed, stacks[2].smg(), through}, stop, nil
	}
}

// startSMG starts smg as its documentation says for engines with gRPC, with default
// settings, and an engine of its own.
func (p Peers) startSMG(ctx context.Context, o StackOptions) (*Stack, error) {
	s, err := newStack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := p.runSMG(ctx, s, o); err != nil {
		return nil, s.failed("smg", err)
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
	s.filter, err = s.run("smg", p.SMG, "launch", "--worker-urls", "grpc://127.0.0.1:"+address,
		"--host", "127.0.0.1", "--port", port, "--prometheus-host", "127.0.0.1", "--prometheus-port", metrics)
	if err != nil {
		return err
	}
	return awaitTarget(ctx, s.smg())
}

// smg returns the target of a stack of smg.
func (s *Stack) smg() *Target {
	return &Target{
		Name: "smg", URL: s.URL + chatPath, Body: chatBody, Key: contentKey,
		Procs: []Process{s.filter, s.Engine},
	}
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
