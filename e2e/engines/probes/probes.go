// Package probes holds the simulator to real engines. [Run] sends the same requests to any
// engine and returns what it answers, without what differs from run to run. The directory
// testdata has a [File] of such answers for each engine and version: make test-engines
// writes it, and a test of engine-sim compares its own answers with the newest ones.
package probes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// What the engines of make test-engines serve.
const (
	Model         = "gpt-oss-tiny"
	ContextLength = 8192
)

// Engine is an engine as it is started: a kind with options that change its wire format.
type Engine struct {
	Name string // of its files
	Kind string // of package engine
	// Variable is the environment variable with its URL in make test-engines.
	Variable string
	// Cumulative says that its events have all ids so far.
	Cumulative bool
	// Block is the size in tokens of the blocks that it caches; 0: engine-sim's own. vLLM has 128 on a CPU,
	// SGLang's radix cache single tokens.
	Block int
	// Directives make engine-sim this engine.
	Directives string
}

// Engines are those that are probed.
var Engines = []Engine{
	{Name: "sglang", Kind: sglang, Variable: "ENGINE_TEST_SGLANG", Block: 1, Cumulative: true, Directives: "output-ids=cumulative"},
	{Name: "sglang-incremental", Kind: sglang, Variable: "ENGINE_TEST_SGLANG_INCREMENTAL", Block: 1},
	{
		Name: "sglang-no-tokenizer", Kind: sglang, Variable: "ENGINE_TEST_SGLANG_NO_TOKENIZER", Block: 1, Cumulative: true,
		Directives: "output-ids=cumulative tokenizer=none",
	},
	{Name: "sglang-grpc", Kind: sglangGRPC, Variable: "ENGINE_TEST_SGLANG_GRPC", Block: 1},
	{Name: "vllm", Kind: vllm, Variable: "ENGINE_TEST_VLLM", Block: 128},
	{Name: "vllm-generate", Kind: vllmGenerate, Variable: "ENGINE_TEST_VLLM", Block: 128},
	{Name: "vllm-grpc", Kind: vllmGRPC, Variable: "ENGINE_TEST_VLLM_GRPC", Block: 128},
	{Name: "llamacpp", Kind: llamacpp, Variable: "ENGINE_TEST_LLAMACPP"},
}

// The kinds, as package engine names them.
const (
	sglang       = "sglang"
	sglangGRPC   = "sglang-grpc"
	vllm         = "vllm"
	vllmGenerate = "vllm-generate"
	vllmGRPC     = "vllm-grpc"
	llamacpp     = "llamacpp"
)

// members are members of a request, by their names.
type members map[string]any

// probe is a request, and what is done besides.
type probe struct {
	name  string
	kinds string // separated by spaces; "": all
	// The last user message: a script that engine-sim and the players of real engines know.
	script string
	// Sampling parameters. "max", "min" and "seed" have the names of the kind. A nil leaves
	// one out.
	sampling members
	top      members // other members of the request
	prompt   any     // in place of the script's token ids
	whole    bool    // the answer is not a stream
	act      action
	// vague says that the output is not compared: its size depends on when something is done, or its
	// tokens on the weights.
	vague bool
	// patience bounds an answer that may never end, which the answer then says; 0: it has to.
	patience time.Duration

	// A request that is none for tokens, with the path and the body as they are.
	method, path, contentType, body string
}

// action is what happens during a request, or before it.
type action int

const (
	nothing     action = iota
	again              // the answer is that to the same request sent once more
	abort              // it is aborted by its id when it has begun
	abortPrefix        // another request is aborted, whose id is the beginning of this one's
	abortAll           // all are aborted
	twice              // another request with its id is sent while it runs, and answered first
	leave              // its client leaves; the answer is that to the next request with its id
)

// Answer is what an engine answers to a probe, in lines for a person to read.
type Answer struct{ Probe, Text string }

// wait bounds an answer: an engine on a busy CPU is slow.
const wait = 3 * time.Minute

// Run sends the probes to an engine and returns its answers.
func Run(ctx context.Context, e Engine, url string) ([]Answer, error) {
	c := newClient(e, url)
	defer c.close()

	// An engine that has served others has the common beginning of all prompts in its cache: let one that
	// has just started have it too.
	warm := probe{name: "warm-up", script: brief}
	if _, err := c.bounded(ctx, &warm); err != nil {
		return nil, err
	}

	var answers []Answer
	for i := range table {
		p := &table[i]
		if !p.isFor(e.Kind) {
			continue
		}
		text, err := c.bounded(ctx, p)
		if err != nil {
			return answers, err
		}
		answers = append(answers, Answer{p.name, text})
	}
	return answers, nil
}

// bounded sends a probe and waits so long at most.
func (c *client) bounded(ctx context.Context, p *probe) (string, error) {
	limited, cancel := context.WithTimeout(ctx, cmp.Or(p.patience, wait))
	defer cancel()
	text, err := c.probe(limited, p)
	if err != nil {
		return "", fmt.Errorf("probe %q: %w", p.name, err)
	}
	return text, nil
}

func (p *probe) isFor(kind string) bool {
	if p.kinds == "" {
		return true
	}
	return slices.Contains(strings.Fields(p.kinds), kind)
}

// conversation returns a prompt with a user message.
func conversation(user string) []harmony.Token {
	ids := harmony.AppendEncodeSpecial(nil, "<|start|>system<|message|>You are ChatGPT.<|end|><|start|>user<|message|>")
	ids = harmony.AppendEncode(ids, user)
	return harmony.AppendEncodeSpecial(ids, "<|end|><|start|>assistant")
}
