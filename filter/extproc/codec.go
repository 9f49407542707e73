package extproc

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Codec returns gRPC's codec for protobuf, which writes one message faster: a
// ProcessingResponse that has a piece of a body and nothing else, as a token is sent to
// Envoy. Protobuf walks the five messages of a piece twice, the first time for their
// sizes. The bytes are the same.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(protocodec.Name)} }

type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*extprocv3.ProcessingResponse)
	if !ok || m == nil {
		return c.CodecV2.Marshal(v)
	}
	path, piece := pieceOf(m)
	if piece == nil {
		return c.CodecV2.Marshal(v)
	}

	// As gRPC's own codec does: small messages are not worth a buffer of the pool.
	sizes, size := path.sizes(piece)
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(path.append(make([]byte, 0, size), sizes, piece))}, nil
	}
	buf := pieceBuffers.Get(size)
	path.append((*buf)[:0], sizes, piece)
	return mem.BufferSlice{mem.NewBuffer(buf, pieceBuffers)}, nil
}

// pieceBuffers has a size for the largest piece. gRPC's own pool has none between 32 KB and
// 1 MB, and each stream whose client does not read keeps the buffers of two pieces.
var pieceBuffers = mem.NewTieredBufferPool(4<<10, 16<<10, 32<<10, 64<<10)

// bodyPath is the way to a piece of a body: the field of each message, from that of
// ProcessingResponse on.
type bodyPath []protowire.Number

// The ways to a piece of a body, of at most maxPath fields.
var (
	requestBodyPath  = bodyPath{3, 1, 3, 3} // request_body, response, body_mutation, streamed_response
	responseBodyPath = bodyPath{4, 1, 3, 3} // response_body, and the same
	localBodyPath    = bodyPath{11, 2}      // streamed_immediate_response, body_response
)

const maxPath = 4

// The fields of StreamedBodyResponse.
const (
	pieceBody protowire.Number = 1
	pieceEnd  protowire.Number = 2
)

// pieceOf returns the piece of a body that a message consists of, and the way to it.
// The piece is nil if the message has anything else. Unknown fields are looked for in
// the message itself only, where [metadataFields] are.
func pieceOf(m *extprocv3.ProcessingResponse) (bodyPath, *extprocv3.StreamedBodyResponse) {
	if m.DynamicMetadata != nil || len(m.TypedDynamicMetadata) > 0 || m.ModeOverride != nil ||
		m.OverrideMessageTimeout != nil || m.ServerWindowUpdate != nil ||
		//nolint:staticcheck // a field that is set must not be lost, deprecated or not
		m.RequestDrain || m.RequestDrainRequests || m.RequestDrainResponses ||
		len(m.ProtoReflect().GetUnknown()) > 0 {
		return nil, nil
	}
	switch r := m.Response.(type) {
	case *extprocv3.ProcessingResponse_RequestBody:
		return requestBodyPath, streamedPiece(r.RequestBody.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		return responseBodyPath, streamedPiece(r.ResponseBody.GetResponse())
	case *extprocv3.ProcessingResponse_StreamedImmediateResponse:
		if b, ok := r.StreamedImmediateResponse.GetResponse().(*extprocv3.StreamedImmediateResponse_BodyResponse); ok {
			return localBodyPath, plainPiece(b.BodyResponse)
		}
	}
	return nil, nil
}

// streamedPiece returns the piece that is all that c has; else nil.
func streamedPiece(c *extprocv3.CommonResponse) *extprocv3.StreamedBodyResponse {
	if c == nil || c.Status != extprocv3.CommonResponse_CONTINUE || c.HeaderMutation != nil || c.Trailers != nil ||
		c.ClearRouteCache {
		return nil
	}
	s, ok := c.BodyMutation.GetMutation().(*extprocv3.BodyMutation_StreamedResponse)
	if !ok {
		return nil
	}
	return plainPiece(s.StreamedResponse)
}

// plainPiece returns p if it has a body and its end only; else nil.
func plainPiece(p *extprocv3.StreamedBodyResponse) *extprocv3.StreamedBodyResponse {
	if p == nil || p.EndOfStreamWithoutMessage || p.GrpcMessageCompressed || p.DrainComplete {
		return nil
	}
	return p
}

// sizes returns how many bytes the value of each field has, and the whole message.
func (path bodyPath) sizes(piece *extprocv3.StreamedBodyResponse) (of [maxPath]int, size int) {
	if len(piece.Body) > 0 {
		size += sizeOf(len(piece.Body))
	}
	if piece.EndOfStream {
		size += 1 + 1
	}
	for i := len(path) - 1; i >= 0; i-- {
		of[i] = size
		size = sizeOf(size)
	}
	return of, size
}

// append appends the message in protobuf's wire format.
func (path bodyPath) append(dst []byte, sizes [maxPath]int, piece *extprocv3.StreamedBodyResponse) []byte {
	for i, field := range path {
		dst = appendLength(dst, field, sizes[i])
	}
	if len(piece.Body) > 0 {
		dst = append(appendLength(dst, pieceBody, len(piece.Body)), piece.Body...)
	}
	if piece.EndOfStream {
		dst = protowire.AppendVarint(protowire.AppendTag(dst, pieceEnd, protowire.VarintType), 1)
	}
	return dst
}
