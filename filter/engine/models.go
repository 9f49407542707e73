package engine

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Model is what an engine tells of the model that it serves.
type Model struct {
	ID            string
	ContextLength int // tokens of prompt and output together; 0: not told
}

// ModelTeller is a dialect whose engine has a method of its own for what others
// tell at GET /v1/models.
type ModelTeller interface {
	Dialect
	// EncodeModelInfo asks for the model.
	EncodeModelInfo() *HTTPRequest
	// ReadModelInfo reads a 200 answer that has ended. It fails where the
	// method did, or names no model.
	ReadModelInfo(body []byte, trailer func(name string) string) (Model, *apierror.Error)
}

// modelInfo are the field numbers of a GetModelInfoResponse.
type modelInfo struct {
	id      protowire.Number
	path    protowire.Number // of the model, where it has no id; 0: none
	context protowire.Number
}

func (d *grpcDialect) EncodeModelInfo() *HTTPRequest {
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
	ok = readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) bool {
		switch {
		case number == d.info.context && kind == protowire.VarintType:
			if v, _ := protowire.ConsumeVarint(value); v <= maxContext {
				m.ContextLength = int(v)
			}
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
	if !ok || m.ID == "" {
		return Model{}, notProtobuf()
	}
	return m, nil
}

// maxContext is the highest int32: what is above is no length.
const maxContext = 1<<31 - 1

// grpcCall is a call of a method with the message behind its frame's prefix.
func grpcCall(path string, framed []byte) *HTTPRequest {
	return &HTTPRequest{Path: path, Header: []Header{{"content-type", "application/grpc"}, {"te", "trailers"}}, Body: framed}
}
