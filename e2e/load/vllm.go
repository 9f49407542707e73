package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"
)

// vLLM's own frontend is a peer as well: it makes Chat Completions of its engine's
// tokens in a process of its own, the API server, which starts the engine as another
// process. The engine of a CPU is the bottleneck, so that only the CPU time of the API
// server counts: where it makes the chat, and where it only passes token ids to the
// filter.

const (
	vllmScenario = "vllm" // the comparison's name
	// vllmModel is the model that e2e/engines/run.sh serves. Its script is the last
	// user message.
	vllmModel = "gpt-oss-tiny"
	// vllmStreams is how many streams that engine has at once.
	vllmStreams = 16
	vllmWords   = 200
	vllmTime    = 5 * time.Minute // that it may take to start
)

// vllmOptions are the options of a load that it can bear.
func (o Options) vllmOptions() Options {
	o.BurstStreams, o.BurstWords = vllmStreams, vllmWords
	return o
}

// runVLLM compares with vLLM's frontend, if there is one and it is wanted.
func (l *Loader) runVLLM(ctx context.Context, peers Peers, o StackOptions, wanted []string) error {
	if peers.VLLM == "" || !slices.Contains(wanted, vllmScenario) {
		return nil
	}
	l.Options, l.Fresh = l.Options.vllmOptions(), peers.startVLLM(o)
	return l.Run(ctx, []string{"burst"})
}

// startVLLM starts vLLM by its script, and Envoy and the filter before it. It returns the
// filter and vLLM's own API as targets.
func (p Peers) startVLLM(o StackOptions) func(context.Context) ([]*Target, func(), error) {
	return func(ctx context.Context) ([]*Target, func(), error) {
		s, err := newStack()
		if err != nil {
			return nil, nil, err
		}
		if err := p.runVLLM(ctx, s); err != nil {
			return nil, nil, s.failed("vllm", err)
		}

		o.Engine = "vllm"
		ctx, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		if err := s.startFilter(ctx, o); err != nil {
			return nil, nil, s.failed("filter", err)
		}

		own := &Target{
			Name: "vLLM's frontend", URL: s.SimURL + chatPath, Body: chatBodyOf(vllmModel),
			Script: sayWords, Key: contentKey, Procs: []Process{{"vLLM", s.Engine.PID}},
		}

		// The same model and messages, at Envoy's address.
		filtered := *own
		filtered.Name, filtered.URL, filtered.Procs = "filter, vLLM",
			s.URL+chatPath, []Process{s.filter, s.envoy, s.Engine}

		if err := awaitTarget(ctx, &filtered); err != nil {
			return nil, nil, s.failed("filter", err)
		}

		return []*Target{&filtered, own}, s.Stop, nil
	}
}

// runVLLM starts vLLM and waits until it answers.
func (p Peers) runVLLM(ctx context.Context, s *Stack) error {
	ctx, cancel := context.WithTimeout(ctx, vllmTime)
	defer cancel()
	port, err := freePort(ctx)
	// The script reads the port from its environment, which it has from this process.
	if err := errors.Join(err, os.Setenv("PORT", port)); err != nil {
		return err
	}
	s.SimURL = "http://127.0.0.1:" + port
	if s.Engine, err = s.run("vllm", p.VLLM, "serve", "vllm"); err != nil {
		return err
	}

	// The table has a column for the engine.
	s.Engine.Name = engineName
	return awaitTarget(ctx, &Target{
		Name: "vLLM", URL: s.SimURL + chatPath, Body: chatBodyOf(vllmModel),
		Script: sayWords, Key: contentKey,
	})
}

// sayWords is the script of an answer of words, for the engine's model.
func sayWords(n int) string {
	all := words()
	return "NOTHINK\nSAY First" + strings.Join(all[:n], "")
}
