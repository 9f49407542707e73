package engine

// AppendSampling appends the sampling parameters of r as a JSON object. Absent
// parameters have their neutral values. The names are those that the engines
// have in common. max_tokens is omitted if it is 0.
func (r *Request) AppendSampling(dst []byte) []byte {
	sampling := *r
	// The size of the reply's chunks is not a sampling parameter.
	sampling.Whole = false
	o := newObject(dst)
	o.sampling(&sampling)
	o.limits(r, "max_tokens", "min_tokens", "seed")
	if r.Logprobs {
		o.integer("logprobs", r.TopLogprobs)
	}
	o.structuredOutputs(r)
	return o.end()
}
