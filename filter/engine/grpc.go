package engine

import (
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// grpcDialect is the server-streaming gRPC method Generate of one engine. It is
// encoded and decoded by hand, since Envoy is the transport and only few fields
// of the messages are needed. The fields of grpcDialect are the differences
// between the engines.
type grpcDialect struct {
	kind    string
	path    string   // path of the method
	ignored []string // parameters that the service has no fields for

	// validate returns an error for what this engine in particular does not
	// support. It may be nil.
	validate func(r *Request) *apierror.Error
	// encode appends the fields of a GenerateRequest.
	encode func(m *message, r *Request)

	// readLogprobs reads the field logprobs of a Chunk or Complete. It returns
	// false if the field is not in the expected format.
	readLogprobs func(l *logprobs, b []byte) bool
	// chunk and complete describe the messages of a GenerateResponse.
	chunk, complete replyMessage
	info            modelInfo
}

// replyMessage contains the field number of a message in GenerateResponse and
// the field numbers in the message. Only a Complete, which ends a choice, has a
// finish reason.
type replyMessage struct {
	field    protowire.Number
	ids      protowire.Number
	cached   protowire.Number
	index    protowire.Number
	finish   protowire.Number
	logprobs protowire.Number
}

func (d *grpcDialect) Kind() string { return d.kind }

func (d *grpcDialect) Traits() Traits { return Traits{Constrains: true, GRPC: true, ModelInfo: d} }

func (d *grpcDialect) Ignores(r *Request) []string { return unsupported(r, d.ignored...) }

func (d *grpcDialect) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := validate(r); err != nil {
		return nil, err
	}
	if d.validate != nil {
		if err := d.validate(r); err != nil {
			return nil, err
		}
	}

	// An id takes three bytes as a varint. The frame's length is known at the end.
	m := message{make([]byte, framePrefix, 3*len(r.Prompt)+1024)}
	d.encode(&m, r)
	binary.BigEndian.PutUint32(m.b[1:], uint32(len(m.b)-framePrefix)) //nolint:gosec // bounded by the size of requests
	return grpcCall(d.path, m.b), nil
}

func (d *grpcDialect) NewDecoder(r *Request) Decoder {
	p := newProgress(r)
	return &grpcDecoder{
		dialect: d, progress: p, seen: make([]int, len(p.finished)), limit: r.MaxTokens, stops: stopTokens(r),
	}
}

// ReadError translates a reply that may not come from a gRPC server, such as a
// local reply of Envoy.
func (d *grpcDialect) ReadError(status int, header func(string) string, body []byte) *apierror.Error {
	if err := statusError(header); err != nil {
		return err
	}
	return readError(status, header, body)
}

// grpcDecoder decodes GenerateResponses. A Chunk contains new ids of a choice.
// A Complete follows the last Chunk. It repeats either the ids of that Chunk or
// all ids of the choice.
type grpcDecoder struct {
	dialect *grpcDialect
	progress
	frames    frames
	seen      []int           // number of ids decoded, by choice
	limit     int             // most tokens of a choice
	stops     []harmony.Token // that end a choice
	usageSent bool            // a chunk with the usage has been returned
	usage     Usage
}

func (d *grpcDecoder) Feed(p []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	d.reset()
	for !d.done {
		m, rest, ok := d.frames.next(p)
		if !ok {
			if d.frames.fault != "" {
				return chunks, d.fail(unreadable(d.frames.fault))
			}
			break
		}
		p = rest
		var err *apierror.Error
		if chunks, err = d.read(m, chunks); err != nil {
			return chunks, d.fail(err)
		}
	}
	return chunks, nil
}

func (d *grpcDecoder) End(chunks []Chunk) ([]Chunk, *apierror.Error) {
	if d.done {
		return chunks, nil
	}
	return chunks, d.end()
}

// Trailers reads the status of the call. Errors after the last choice has
// finished are ignored.
func (d *grpcDecoder) Trailers(trailer func(name string) string) *apierror.Error {
	if d.done || d.open == 0 {
		return nil
	}
	if err := statusError(trailer); err != nil {
		return d.fail(err)
	}
	return nil
}

// grpcMessage is a decoded Chunk or Complete.
type grpcMessage struct {
	complete bool
	ids      []harmony.Token
	cached   int
	index    int
	finish   []byte
}

// read decodes one GenerateResponse.
func (d *grpcDecoder) read(b []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	var m grpcMessage
	known := false
	ok := readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) bool {
		var fields *replyMessage
		switch {
		case kind != protowire.BytesType:
			return true
		case number == d.dialect.chunk.field:
			fields = &d.dialect.chunk
		case number == d.dialect.complete.field:
			fields = &d.dialect.complete
		default:
			return true
		}

		known, m.complete = true, number == d.dialect.complete.field
		inner, _ := protowire.ConsumeBytes(value)
		return d.readMessage(&m, inner, fields)
	})

	if !ok {
		return chunks, notProtobuf()
	}
	if !known {
		// A message that only newer engines send.
		return chunks, nil
	}
	if ok, err := d.isOpen(m.index); !ok {
		return chunks, err
	}
	return d.appendMessage(&m, chunks)
}

func notProtobuf() *apierror.Error { return unreadable("a message is not the engine's") }

// readMessage decodes a Chunk or a Complete. It returns false if b is neither.
func (d *grpcDecoder) readMessage(m *grpcMessage, b []byte, f *replyMessage) bool {
	from := len(d.ids)
	d.logprobs.next()

	ok := readFields(b, func(number protowire.Number, kind protowire.Type, value []byte) (ok bool) {
		ok = true
		switch number {
		case f.ids:
			d.ids, ok = appendVarints(d.ids, kind, value)
		case f.cached:
			m.cached, ok = readCount(kind, value)
		case f.index:
			m.index, ok = readCount(kind, value)
		case f.finish:
			m.finish, _ = protowire.ConsumeBytes(value)
			ok = kind == protowire.BytesType
		case f.logprobs:
			if d.logprobs.requested {
				inner, _ := protowire.ConsumeBytes(value)
				ok = kind == protowire.BytesType && d.dialect.readLogprobs(&d.logprobs, inner)
			}
		}
		return ok
	})

	// Full: what is appended later for another message must not change these.
	m.ids = d.ids[from:len(d.ids):len(d.ids)]
	return ok
}

// readCount decodes a uint32.
func readCount(kind protowire.Type, value []byte) (int, bool) {
	v, n := protowire.ConsumeVarint(value)
	return int(v), kind == protowire.VarintType && n >= 0 && v <= maxCount //nolint:gosec // compared
}

// maxCount is the highest uint32.
const maxCount = 1<<32 - 1

// appendMessage appends the chunk of a message.
func (d *grpcDecoder) appendMessage(m *grpcMessage, chunks []Chunk) ([]Chunk, *apierror.Error) {
	c := Chunk{Index: m.index, Tokens: m.ids}
	var err *apierror.Error
	if m.complete {
		// A Complete repeats ids: those before have been returned already.
		c.Tokens = m.ids[min(d.seen[m.index], len(m.ids)):]
		if c.Finish, err = d.readFinish(m); err != nil {
			return chunks, err
		}
		d.finish(m.index)
	}
	if c.Logprobs, err = d.logprobs.forTokens(c.Tokens); err != nil {
		return chunks, err
	}
	d.seen[m.index] += len(c.Tokens)

	// The counts are in every message. One chunk has them, the first.
	if !d.usageSent {
		d.usageSent = true
		d.usage.CachedTokens = m.cached
		c.Usage = &d.usage
	}
	return appendChunk(chunks, &c), nil
}

// readFinish returns why a choice has ended. TensorRT-LLM says it of the choice that ends
// last only. The others were cut if they are as long as the request allows.
func (d *grpcDecoder) readFinish(m *grpcMessage) (Finish, *apierror.Error) {
	n := len(m.ids)
	if len(m.finish) == 0 && d.limit > 0 && n >= d.limit && !slices.Contains(d.stops, m.ids[n-1]) {
		return FinishLength, nil
	}
	return grpcFinish(m.finish)
}

// grpcFinish parses a finish_reason: "stop", "stop_word", "length", "abort" and
// others.
func grpcFinish(reason []byte) (Finish, *apierror.Error) {
	switch string(reason) {
	case "length":
		return FinishLength, nil
	// Another engine can go on.
	case "abort", "cancelled", "timeout":
		return FinishAbort, nil
	case "error":
		return FinishNone, translate(failure{status: http.StatusInternalServerError})
	}
	return FinishStop, nil
}

// framePrefix is the size of the prefix of a message: one byte that is 1 if the
// message is compressed, and four bytes with its length.
const framePrefix = 5

// frames splits a gRPC body, in pieces of any size, into its messages.
type frames struct {
	pending []byte // the beginning of an incomplete frame
	fault   string // why the body is not valid gRPC
}

// next returns the next complete message and the rest of p. If p completes no
// message, ok is false and p has been buffered. The message is valid until the
// next call.
func (f *frames) next(p []byte) (m, rest []byte, ok bool) {
	if f.fault != "" {
		return nil, nil, false
	}

	// Most pieces have whole messages, which are not copied.
	if len(f.pending) == 0 {
		size, known := f.size(p)
		if known && len(p) >= size {
			return p[framePrefix:size], p[size:], true
		}
		f.buffer(p)
		return nil, nil, false
	}

	// The length comes first: no more is copied than belongs to this message.
	if missing := framePrefix - len(f.pending); missing > 0 {
		n := min(missing, len(p))
		f.buffer(p[:n])
		p = p[n:]
	}
	size, known := f.size(f.pending)
	if !known {
		return nil, nil, false
	}

	n := min(size-len(f.pending), len(p))
	f.buffer(p[:n])
	if len(f.pending) < size {
		return nil, nil, false
	}

	m = f.pending[framePrefix:]
	// A buffer that one long message has made is not kept for the whole reply.
	if f.pending = f.pending[:0]; size > keepLine {
		f.pending = nil
	}
	return m, p[n:], true
}

func (f *frames) buffer(p []byte) {
	if f.fault == "" {
		f.pending = append(f.pending, p...)
	}
}

// size returns the size of the frame that begins with p. known is false while p
// is too short.
func (f *frames) size(p []byte) (size int, known bool) {
	if len(p) > 0 && p[0] == 1 {
		f.fault = "a message is compressed, although compression was not offered"
		return 0, false
	}
	if len(p) > 0 && p[0] != 0 {
		f.fault = "it is not gRPC"
		return 0, false
	}
	if len(p) < framePrefix {
		return 0, false
	}

	// Refused before anything is buffered: the length is the peer's word.
	n := binary.BigEndian.Uint32(p[1:])
	if n > maxLine {
		f.fault = "a message is too long"
		return 0, false
	}
	return framePrefix + int(n), true
}

// httpStatus maps gRPC status codes to HTTP statuses. Other codes mean that the
// engine failed.
var httpStatus = map[string]int{
	"3":  http.StatusBadRequest,         // INVALID_ARGUMENT
	"4":  http.StatusGatewayTimeout,     // DEADLINE_EXCEEDED
	"5":  http.StatusNotFound,           // NOT_FOUND
	"7":  http.StatusForbidden,          // PERMISSION_DENIED
	"8":  http.StatusTooManyRequests,    // RESOURCE_EXHAUSTED
	"9":  http.StatusBadRequest,         // FAILED_PRECONDITION
	"11": http.StatusBadRequest,         // OUT_OF_RANGE
	"12": http.StatusNotFound,           // UNIMPLEMENTED: unknown method
	"14": http.StatusServiceUnavailable, // UNAVAILABLE
	"16": http.StatusUnauthorized,       // UNAUTHENTICATED
}

// statusError returns the error in grpc-status and grpc-message, or nil if
// there is none.
func statusError(field func(name string) string) *apierror.Error {
	code := field("grpc-status")
	if code == "" || code == "0" {
		return nil
	}

	status, known := httpStatus[code]
	if !known {
		status = http.StatusInternalServerError
	}

	// gRPC percent-encodes the message. RESOURCE_EXHAUSTED means two things: that the engine has
	// no room, and that the request is larger than the server's limit on messages.
	message, err := url.PathUnescape(field("grpc-message"))
	if err != nil {
		message = ""
	}
	if code == "8" && strings.Contains(message, "larger than max") {
		status = http.StatusRequestEntityTooLarge
	}

	return translate(failure{
		status:     status,
		message:    message,
		kind:       "grpc-status " + code,
		retryAfter: retryAfter(field),
	})
}
