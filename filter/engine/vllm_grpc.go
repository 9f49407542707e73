package engine

// vllmGRPC is the service vllm.grpc.engine.VllmEngine of vLLM's gRPC server.
var vllmGRPC = &grpcKVTransfer{paramsField: 12, grpcDialect: &grpcDialect{
	kind:         "vllm-grpc",
	path:         "/vllm.grpc.engine.VllmEngine/Generate",
	ignored:      []string{"cache_salt", "priority"},
	encode:       encodeVLLMRequest,
	readLogprobs: (*logprobs).readColumns,
	chunk:        replyMessage{field: 1, ids: 1, cached: 4, logprobs: 5, index: 7},
	complete:     replyMessage{field: 2, ids: 1, finish: 2, cached: 5, logprobs: 6, index: 8},
	info:         modelInfo{id: 6, path: 1, context: 3},
}}

func encodeVLLMRequest(m *message, r *Request) {
	m.text(1, r.ID.String())
	m.prompt(2, r.Prompt)

	// A field that is absent has protobuf's zero, which is no neutral value of most of these.
	m.inner(4, func(p *message) {
		p.number(1, or(r.Temperature, 1))
		p.number(2, or(r.TopP, 1))
		p.integer(3, int64(max(or(r.TopK, 0), 0))) // 0: no limit
		p.number(4, or(r.MinP, 0))
		p.number(5, or(r.FrequencyPenalty, 0))
		p.number(6, or(r.PresencePenalty, 0))
		p.number(7, or(r.RepetitionPenalty, 1))
		p.integer(8, int64(r.MaxTokens))
		p.integer(9, int64(max(r.MinTokens, 0)))
		p.ids(11, stopTokens(r))
		p.boolean(12, false) // skip_special_tokens
		p.boolean(14, false) // ignore_eos
		p.integer(15, int64(max(r.N, 1)))
		p.text(19, structuralTag(r))
		if r.Logprobs {
			p.integer(22, int64(r.withOwn()))
		}
		if r.Seed != nil {
			p.integer(24, int64(int32(*r.Seed))) //nolint:gosec // the field's size; equal seeds stay equal
		}
		p.bias(26, r.LogitBias, false)
		if r.Constraint != nil {
			p.boolean(28, true) // grammar_from_first_token, independent of the engine's reasoning parser
		}
	})

	m.boolean(5, !r.unstreamed()) // stream
	if r.Disaggregation != nil {
		m.text(8, string(r.Disaggregation.KVTransferParams))
	}
}
