package engine

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// vllmGenerate is vLLM's POST /inference/v1/generate, token ids in and out with
// no text at all. The server has it with --tokens-only or --enable-scale-out.
// Its events are those of /v1/completions without the text.
type vllmGenerate struct{ vllm }

func (vllmGenerate) Kind() string { return "vllm-generate" }

// Encode writes a GenerateRequest. reasoning_ended makes a grammar hold from
// the first token, whatever reasoning parser the engine runs.
func (vllmGenerate) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := refuse(r); err != nil {
		return nil, err
	}
	o := newBody(r)
	o.text("model", r.Model)
	o.ids("token_ids", r.Prompt)
	o.name("sampling_params")
	p := newObject(o.b)
	p.sampling(r)
	p.limits(r, "max_tokens", "min_tokens", "seed")
	p.boolean("detokenize", false)
	if r.Logprobs {
		p.integer("logprobs", r.withOwn())
	}
	p.structuredOutputs(r)
	o.b = p.end()
	o.text("output_mode", "tokens")
	o.boolean("reasoning_ended", true)
	o.streamed(r)
	o.transfer(r)
	o.scheduling(r)
	return o.request("/inference/v1/generate", r.ID), nil
}
