package engine

// sglangGRPC is the service sglang.grpc.scheduler.SglangScheduler of SGLang's
// gRPC server.
var sglangGRPC = &grpcBootstrapRoom{grpcDialect: &grpcDialect{
	kind:         "sglang-grpc",
	path:         "/sglang.grpc.scheduler.SglangScheduler/Generate",
	ignored:      []string{"seed", "cache_salt", "priority"},
	encode:       encodeSGLangRequest,
	readLogprobs: (*logprobs).readColumns,
	chunk:        replyMessage{field: 2, ids: 1, cached: 4, logprobs: 5, index: 8},
	complete:     replyMessage{field: 3, ids: 1, finish: 2, cached: 5, logprobs: 6, index: 11},
	info:         modelInfo{id: 6, path: 1, context: 7, input: 14},
}}

func encodeSGLangRequest(m *message, r *Request) {
	m.text(1, r.ID.String())
	m.prompt(2, r.Prompt)

	// A field that is absent has protobuf's zero, which is no neutral value of most of these.
	m.inner(4, func(p *message) {
		p.number(1, or(r.Temperature, 1))
		p.number(2, or(r.TopP, 1))
		p.integer(3, int64(r.topK()))
		p.number(4, or(r.MinP, 0))
		p.number(5, or(r.FrequencyPenalty, 0))
		p.number(6, or(r.PresencePenalty, 0))
		p.number(7, or(r.RepetitionPenalty, 1))
		p.integer(8, int64(r.MaxTokens))
		p.ids(10, stopTokens(r))
		p.boolean(11, false) // skip_special_tokens
		p.text(16, structuralTag(r))
		p.integer(17, int64(max(r.N, 1)))
		p.integer(18, int64(max(r.MinTokens, 0)))
		p.boolean(19, false) // ignore_eos
		p.boolean(20, true)  // no_stop_trim
		if r.Whole {
			p.integer(21, wholeInterval)
		}
		p.bias(22, r.LogitBias, true)
	})

	m.boolean(5, r.Logprobs) // return_logprob
	m.integer(6, -1)         // logprob_start_len: no log probabilities of the prompt
	if r.Logprobs {
		m.integer(7, int64(r.TopLogprobs))
	}

	if r.Disaggregation != nil {
		at := r.Disaggregation.Bootstrap
		m.inner(10, func(d *message) {
			d.text(1, at.Host)
			d.integer(2, int64(at.Port))
			d.integer(3, int64(at.Room))
		})
	}

	m.boolean(17, true)  // stream
	m.boolean(18, false) // require_reasoning
}
