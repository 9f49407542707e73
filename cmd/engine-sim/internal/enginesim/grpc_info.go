package enginesim

import (
	"encoding/binary"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file answers the calls beside Generate with which gateways find out what an
// engine is and whether it is well.

// infoFields are the field numbers of GetModelInfoResponse; 0: it has none, or it is
// left out.
type infoFields struct {
	id                              []protowire.Number
	generation, context, vocabulary protowire.Number
	// Of the longest prompt: where there is one, the context length is the size of the cache.
	input protowire.Number
	// Of TensorRT-LLM's max_input_len, which is not the model's.
	longest                    protowire.Number
	kind, architectures, stops protowire.Number
	status                     bool   // a HealthCheck says it in words
	health                     string // what it says beside its flag
}

// calls are the calls beside Generate, by name.
func (a grpcAPI) calls(s *Sim) map[string]http.HandlerFunc {
	info := a.info.append(nil, s)
	healthy := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	if a.info.status {
		healthy = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "OK")
	}
	if a.info.health != "" {
		healthy = protowire.AppendString(protowire.AppendTag(healthy, 2, protowire.BytesType), a.info.health)
	}
	return map[string]http.HandlerFunc{
		"GetModelInfo":  answerGRPC(info),
		"HealthCheck":   answerGRPC(healthy),
		"GetServerInfo": answerGRPC(nil),
	}
}

// answerGRPC answers every call with one message.
func answerGRPC(message []byte) http.HandlerFunc {
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // a short message
	frame = append(frame, message...)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", grpcType)
		_, _ = w.Write(frame) // the client may have disconnected
		setGRPCStatus(w.Header(), http.TrailerPrefix, 0, "")
	}
}

const (
	grpcType          = "application/grpc"
	grpcUnimplemented = 12
)

// unknownGRPC answers a call of a method that the engine does not have. It reports
// whether the request is a call.
func unknownGRPC(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.Header.Get("content-type"), grpcType) {
		return false
	}
	w.Header().Set("content-type", grpcType)
	setGRPCStatus(w.Header(), "", grpcUnimplemented, "Method not found!")
	w.WriteHeader(http.StatusOK)
	return true
}

// append appends a GetModelInfoResponse.
func (f infoFields) append(b []byte, s *Sim) []byte {
	// Number 0 means that the engine's message has no such field.
	text := func(number protowire.Number, v string) {
		if number > 0 {
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
		}
	}
	integer := func(number protowire.Number, v uint64) {
		if number > 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
		}
	}

	for _, number := range f.id {
		text(number, s.options.Models[0])
	}

	integer(f.generation, 1)
	length := uint64(s.options.ContextLength) //nolint:gosec // a length
	// SGLang says the size of its KV cache where the context length is expected, and its own
	// bound of a prompt beside it.
	if f.input > 0 {
		integer(f.context, 8*length)
		integer(f.input, length-inputReserve)
	} else {
		integer(f.context, length)
	}
	integer(f.longest, defaultMaxInputLen)
	integer(f.vocabulary, vocabularySize)
	text(f.kind, "gpt_oss")
	text(f.architectures, "GptOssForCausalLM")

	if f.stops > 0 {
		var packed []byte
		for _, id := range eos {
			packed = protowire.AppendVarint(packed, uint64(id))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, f.stops, protowire.BytesType), packed)
	}

	return b
}

// defaultMaxInputLen is the max_input_len of a TensorRT-LLM that is not told another.
const defaultMaxInputLen = 1024

// vocabularySize is that of gpt-oss's configuration.
const vocabularySize = 201088
