package engine

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Model is an engine's description of the model that it serves.
type Model struct {
	ID            string
	ContextLength int // most tokens of prompt and output together; 0: unknown
}

// ModelInformer is the dialect of an engine that describes its model with a
// method of its own instead of GET /v1/models ([Traits.ModelInfo]).
type ModelInformer interface {
	Dialect
	// EncodeModelInfo returns the request for the description.
	EncodeModelInfo() *HTTPRequest
	// ReadModelInfo decodes a complete 200 reply. It returns an error if the
	// trailers report one or if the reply names no model.
	ReadModelInfo(body []byte, trailer func(name string) string) (Model, *apierror.Error)
}

// modelInfo contains the field numbers of a GetModelInfoResponse.
type modelInfo struct {
	id   protowire.Number
	path protowire.Number // path of the model, used if it has no id; 0: no such field
	// Lengths, of which the smallest counts: SGLang's max_context_length is the size of its
	// cache, and max_req_input_len what it takes.
	context, input protowire.Number // 0: no such field
	// The length that the service reports as the context length where it knows none: TensorRT-LLM's
	// max_input_len, which is 1,024 unless it is configured, whatever the model.
	substitute protowire.Number // 0: no such field
}

func (d *grpcDialect) EncodeModelInfo() *HTTPRequest {
	// Each of the services has both methods.
	service, _ := strings.CutSuffix(d.path, "/Generate")
	return grpcCall(service+"/GetModelInfo", make([]byte, framePrefix))
}

func (d *grpcDialect) ReadModelInfo(body []byte, trailer func(name string) string) (m Model, err *apierror.Error) {
	if err := statusError(trailer); err != nil {
		return m, err
	}

	var f frames
	b, rest, ok := f.next(body)
	if !ok || len(rest) > 0 {
		return m, unreadable("it is not one message")
	}

	var path string
	var substitute uint64
	ok = readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) bool {
		switch {
		case kind == protowire.VarintType && (number == d.info.context || number == d.info.input):
			// 0, -1 and their like stand for no length.
			v, _ := protowire.ConsumeVarint(value)
			if v > 0 && v <= maxContext && (m.ContextLength == 0 || int(v) < m.ContextLength) {
				m.ContextLength = int(v)
			}
		case kind == protowire.VarintType && number == d.info.substitute:
			substitute, _ = protowire.ConsumeVarint(value)
		case kind != protowire.BytesType:
		case number == d.info.id:
			m.ID, _ = protowire.ConsumeString(value)
		case number == d.info.path:
			path, _ = protowire.ConsumeString(value)
		}
		return true
	})

	if m.ID == "" {
		m.ID = path
	}
	if substitute == uint64(m.ContextLength) { //nolint:gosec // not negative
		m.ContextLength = 0
	}
	if !ok || m.ID == "" {
		return Model{}, notProtobuf()
	}
	return m, nil
}

// maxContext is the highest int32. Greater values are not lengths.
const maxContext = 1<<31 - 1

// grpcCall returns a call of a gRPC method. framed is the message, preceded by
// its frame prefix.
func grpcCall(path string, framed []byte) *HTTPRequest {
	return &HTTPRequest{
		Path:   path,
		Header: []Header{{"content-type", "application/grpc"}, {"te", "trailers"}},
		Body:   framed,
	}
}
