package engine

// AppendSampling appends, as a JSON object, how r is to be sampled, with the
// neutral values of what it leaves open. The names are those that the engines
// share; max_tokens is left out where it is 0.
func (r *Request) AppendSampling(dst []byte) []byte {
	events := *r
	events.Whole = false // how the engine cuts its reply is not sampling
	o := newObject(dst)
	o.sampling(&events)
	o.limits(r, "max_tokens", "min_tokens", "seed")
	if r.Logprobs {
		o.integer("logprobs", r.TopLogprobs)
	}
	o.structuredOutputs(r)
	return o.end()
}
