package engine

import (
	"hash/fnv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// trtllmGRPC is the service trtllm.TrtllmService of TensorRT-LLM's gRPC server.
var trtllmGRPC = &grpcDialect{
	kind:         "trtllm-grpc",
	path:         "/trtllm.TrtllmService/Generate",
	ignored:      []string{"priority"},
	validate:     validateTRTLLM,
	encode:       encodeTRTLLMRequest,
	readLogprobs: (*logprobs).readRow,
	chunk:        replyMessage{field: 2, ids: 1, index: 2, cached: 5, logprobs: 6},
	complete:     replyMessage{field: 3, ids: 1, index: 2, finish: 3, cached: 7, logprobs: 8},
	info:         modelInfo{id: 1, context: 3, substitute: 2},
}

// validateTRTLLM returns an error for requests with a logit_bias. The service
// would need one number for each id of the vocabulary.
func validateTRTLLM(r *Request) *apierror.Error {
	if len(r.LogitBias) > 0 {
		return apierror.Invalid("logit_bias", "This model's engine does not support logit_bias. Leave it out.")
	}
	return nil
}

// encodeTRTLLMRequest writes a GenerateRequest. It requests the stop token,
// which is omitted by default.
func encodeTRTLLMRequest(m *message, r *Request) {
	m.text(1, r.ID.String())
	m.prompt(2, r.Prompt)

	// A field that is absent has protobuf's zero, which is no neutral value of most of these.
	m.inner(3, func(p *message) {
		p.integer(1, 1) // beam_width
		p.integer(2, int64(max(r.N, 1)))
		p.integer(3, int64(max(or(r.TopK, 0), 0))) // 0: no limit
		p.number(4, or(r.TopP, 1))
		if r.Seed != nil {
			p.integer(8, *r.Seed)
		}
		p.number(9, or(r.Temperature, 1))
		p.integer(10, int64(max(r.MinTokens, 0)))
		p.number(12, or(r.RepetitionPenalty, 1))
		p.number(13, or(r.PresencePenalty, 0))
		p.number(14, or(r.FrequencyPenalty, 0))
		p.number(19, or(r.MinP, 0))
	})

	// 0 log probabilities are none at all, also not those of the output.
	m.inner(4, func(o *message) {
		if r.Logprobs {
			o.integer(1, int64(r.atLeastOne()))
		}
		o.boolean(5, true) // exclude_input_from_output
	})

	m.integer(5, int64(r.MaxTokens))
	m.boolean(6, true) // streaming
	if r.Constraint != nil {
		m.inner(11, func(g *message) {
			g.integer(1, 5) // guide_type: structural tag
			g.text(2, structuralTag(r))
		})
	}
	if r.CacheSalt != "" {
		m.integer(19, saltID(r.CacheSalt))
	}

	m.ids(22, stopTokens(r))
	m.boolean(23, false) // ignore_eos
	m.boolean(26, true)  // include_stop_token_in_output
}

// saltID returns a non-negative hash of a salt: the service takes a number.
func saltID(salt string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(salt)) // never fails
	return int64(h.Sum64() >> 1) //nolint:gosec // 63 bits
}

// readRow reads a TokenLogprob of TensorRT-LLM's service, which is one
// position: the id in field 1, its value in field 2, and in field 3 a message
// of the same form per most likely token. It returns false if b is not in this
// format.
func (l *logprobs) readRow(b []byte) bool {
	var own TokenLogprob // protobuf leaves zeros out
	ok := own.read(b, func(inner []byte) bool {
		var t TokenLogprob
		ok := t.read(inner, func([]byte) bool { return true })
		l.addTop(t.Token, t.Logprob)
		return ok
	})
	l.tokens = append(l.tokens, own.Token)
	l.value(own.Logprob)
	l.endPosition()
	return ok
}

// read reads an id and a value. readTop reads the messages in field 3.
func (t *TokenLogprob) read(b []byte, readTop func([]byte) bool) bool {
	return readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) (ok bool) {
		switch number {
		case 1:
			id, n := protowire.ConsumeVarint(value)
			ok = kind == protowire.VarintType && n >= 0 && id <= maxCount
			t.Token = harmony.Token(id) //nolint:gosec // compared
		case 2:
			ok = eachFloat(kind, value, func(v float64) { t.Logprob = v })
		case 3:
			inner, n := protowire.ConsumeBytes(value)
			ok = kind == protowire.BytesType && n >= 0 && readTop(inner)
		default:
			ok = true
		}
		return ok
	})
}
