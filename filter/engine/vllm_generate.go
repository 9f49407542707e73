package engine

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// vllmGenerate is vLLM's API POST /inference/v1/generate, with token ids as
// input and output and no text. The server has it if it runs with --tokens-only
// or --enable-scale-out. Its events are those of /v1/completions without the
// text.
type vllmGenerate struct{ vllm }

func (vllmGenerate) Kind() string { return "vllm-generate" }

// Traits are those of vllm, with this dialect's own requests.
func (v vllmGenerate) Traits() Traits {
	traits := v.vllm.Traits()
	traits.Disaggregation = v
	return traits
}

// Encode returns a GenerateRequest. reasoning_ended makes the grammar apply
// from the first token on, independent of the engine's reasoning parser.
func (vllmGenerate) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := validate(r); err != nil {
		return nil, err
	}

	o := newBody(r)
	o.text("model", r.Model)
	o.ids("token_ids", r.Prompt)
	o.name("sampling_params")
	p := newObject(o.b)
	p.sampling(r)
	p.limits(r, "max_tokens", "min_tokens", "seed")
	// The text would cost the engine time for each token, and is not read.
	p.boolean("detokenize", false)
	if r.Logprobs {
		p.integer("logprobs", r.withOwn())
	}
	p.structuredOutputs(r)
	o.b = p.end()

	o.text("output_mode", "tokens")
	o.boolean("reasoning_ended", true)
	o.streaming(r)
	o.kvTransferParams(r)
	o.scheduling(r)
	o.kvHints(r)
	return o.request("/inference/v1/generate", r.ID.String()), nil
}
