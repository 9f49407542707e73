package engine

import (
	"encoding/binary"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// grpcDialect is an engine's server-streaming gRPC method Generate, written
// and read by hand: Envoy carries it, and of its messages only few fields
// matter. What differs between the engines is the table that each fills in.
type grpcDialect struct {
	kind    string
	path    string   // of the method
	ignored []string // parameters that it has no field for
	// refuses tells what it cannot do beyond what no engine can; nil: nothing.
	refuses func(r *Request) *apierror.Error
	// encode appends the fields of its GenerateRequest.
	encode func(m *message, r *Request)
	// readLogprobs reads what stands in the field logprobs of chunk and
	// complete; false if that is none.
	readLogprobs func(l *logprobs, b []byte) bool
	// chunk and complete are the fields of its GenerateResponse.
	chunk, complete replyMessage
	info            modelInfo
}

// replyMessage says where a message stands in a GenerateResponse, and its own
// field numbers. A Complete ends a choice and has a finish.
type replyMessage struct {
	field, ids, cached, index, finish, logprobs protowire.Number
}

func (d *grpcDialect) Kind() string { return d.kind }

func (d *grpcDialect) isGRPC() {}

func (d *grpcDialect) Constrains() bool { return true }

func (d *grpcDialect) Ignores(r *Request) []string { return unsent(r, d.ignored...) }

func (d *grpcDialect) Encode(r *Request) (*HTTPRequest, *apierror.Error) {
	if err := refuse(r); err != nil {
		return nil, err
	}
	if d.refuses != nil {
		if err := d.refuses(r); err != nil {
			return nil, err
		}
	}
	m := message{make([]byte, framePrefix, 3*len(r.Prompt)+1024)}
	d.encode(&m, r)
	binary.BigEndian.PutUint32(m.b[1:], uint32(len(m.b)-framePrefix)) //nolint:gosec // bounded by the size of requests
	return grpcCall(d.path, m.b), nil
}

func (d *grpcDialect) NewDecoder(r *Request) Decoder {
	p := newProgress(r)
	return &grpcDecoder{dialect: d, progress: p, seen: make([]int, len(p.finished))}
}

// ReadError reads a reply that does not come from a gRPC server, such as one
// that Envoy made itself.
func (d *grpcDialect) ReadError(status int, header func(string) string, body []byte) *apierror.Error {
	if err := statusError(header); err != nil {
		return err
	}
	return readError(status, header, body)
}

// grpcDecoder reads GenerateResponses. A Chunk holds a choice's new ids; its
// Complete comes behind the last one and repeats that chunk's ids, or all of
// the choice's.
type grpcDecoder struct {
	dialect *grpcDialect
	progress
	frames frames
	seen   []int // ids taken, by choice
	told   bool  // of the usage
	usage  Usage
}

func (d *grpcDecoder) Feed(p []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	d.begin()
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

// Trailers reads the call's status. What it says after the last choice's end
// changes nothing.
func (d *grpcDecoder) Trailers(trailer func(name string) string) *apierror.Error {
	if d.done || d.open == 0 {
		return nil
	}
	if err := statusError(trailer); err != nil {
		return d.fail(err)
	}
	return nil
}

// grpcMessage is what a Chunk or a Complete says.
type grpcMessage struct {
	complete bool
	ids      []harmony.Token
	cached   int
	index    int
	finish   []byte
}

// read takes one GenerateResponse.
func (d *grpcDecoder) read(b []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	var m grpcMessage
	ours := false
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
		ours, m.complete = true, number == d.dialect.complete.field
		inner, _ := protowire.ConsumeBytes(value)
		return d.readMessage(&m, inner, fields)
	})
	if !ok {
		return chunks, notProtobuf()
	}
	if !ours {
		return chunks, nil // a message of a newer engine
	}
	if ok, err := d.expects(m.index); !ok {
		return chunks, err
	}
	return d.tell(&m, chunks)
}

func notProtobuf() *apierror.Error { return unreadable("a message is not the engine's") }

// readMessage reads a Chunk or a Complete; false if it is neither.
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
			if d.logprobs.asked {
				inner, _ := protowire.ConsumeBytes(value)
				ok = kind == protowire.BytesType && d.dialect.readLogprobs(&d.logprobs, inner)
			}
		}
		return ok
	})
	m.ids = d.ids[from:len(d.ids):len(d.ids)]
	return ok
}

// readCount reads a uint32.
func readCount(kind protowire.Type, value []byte) (int, bool) {
	v, n := protowire.ConsumeVarint(value)
	return int(v), kind == protowire.VarintType && n >= 0 && v <= maxCount //nolint:gosec // compared
}

// maxCount is the highest uint32.
const maxCount = 1<<32 - 1

// tell makes a chunk of a message.
func (d *grpcDecoder) tell(m *grpcMessage, chunks []Chunk) ([]Chunk, *apierror.Error) {
	c := Chunk{Index: m.index, Tokens: m.ids}
	var err *apierror.Error
	if m.complete {
		c.Tokens = m.ids[min(d.seen[m.index], len(m.ids)):] // the others have been taken
		if c.Finish, err = grpcFinish(m.finish); err != nil {
			return chunks, err
		}
		d.finish(m.index)
	}
	if c.Logprobs, err = d.logprobs.of(c.Tokens); err != nil {
		return chunks, err
	}
	d.seen[m.index] += len(c.Tokens)
	if !d.told {
		d.told = true
		d.usage.CachedTokens = m.cached
		c.Usage = &d.usage
	}
	return appendNews(chunks, &c), nil
}

// grpcFinish reads a finish_reason: "stop", "stop_word", "length", "abort" and
// the like.
func grpcFinish(reason []byte) (Finish, *apierror.Error) {
	switch string(reason) {
	case "length":
		return FinishLength, nil
	case "abort", "cancelled", "timeout":
		return FinishAbort, nil
	case "error":
		return FinishNone, translate(failure{status: http.StatusInternalServerError})
	}
	return FinishStop, nil
}

// framePrefix is the size of what stands before a message: a byte that says
// whether it is compressed, and four of its length.
const framePrefix = 5

// frames takes a gRPC body, cut anywhere, apart into its messages.
type frames struct {
	held  []byte // the beginning of a frame that has not ended yet
	fault string // why the body is none of gRPC
}

// next returns the next complete message and the part of p after it; ok is
// false when p holds no further one, and p's end has been kept. The message is
// valid until the following call.
func (f *frames) next(p []byte) (m, rest []byte, ok bool) {
	if f.fault != "" {
		return nil, nil, false
	}
	if len(f.held) == 0 {
		size, known := f.size(p)
		if known && len(p) >= size {
			return p[framePrefix:size], p[size:], true
		}
		f.hold(p)
		return nil, nil, false
	}
	if missing := framePrefix - len(f.held); missing > 0 {
		n := min(missing, len(p))
		f.hold(p[:n])
		p = p[n:]
	}
	size, known := f.size(f.held)
	if !known {
		return nil, nil, false
	}
	n := min(size-len(f.held), len(p))
	f.hold(p[:n])
	if len(f.held) < size {
		return nil, nil, false
	}
	m = f.held[framePrefix:]
	if f.held = f.held[:0]; size > keepLine {
		f.held = nil
	}
	return m, p[n:], true
}

func (f *frames) hold(p []byte) {
	if f.fault == "" {
		f.held = append(f.held, p...)
	}
}

// size is the size of the frame that p begins, once p tells.
func (f *frames) size(p []byte) (size int, known bool) {
	if len(p) > 0 && p[0] == 1 {
		f.fault = "a message is compressed although that was not accepted"
		return 0, false
	}
	if len(p) > 0 && p[0] != 0 {
		f.fault = "it is no gRPC"
		return 0, false
	}
	if len(p) < framePrefix {
		return 0, false
	}
	n := binary.BigEndian.Uint32(p[1:])
	if n > maxLine {
		f.fault = "a message is too long"
		return 0, false
	}
	return framePrefix + int(n), true
}

// httpStatus is the HTTP status with the meaning of a gRPC status code; the
// others are the engine's fault.
var httpStatus = map[string]int{
	"3":  http.StatusBadRequest,         // INVALID_ARGUMENT
	"4":  http.StatusGatewayTimeout,     // DEADLINE_EXCEEDED
	"5":  http.StatusNotFound,           // NOT_FOUND
	"7":  http.StatusForbidden,          // PERMISSION_DENIED
	"8":  http.StatusTooManyRequests,    // RESOURCE_EXHAUSTED
	"9":  http.StatusBadRequest,         // FAILED_PRECONDITION
	"11": http.StatusBadRequest,         // OUT_OF_RANGE
	"12": http.StatusNotFound,           // UNIMPLEMENTED: the method
	"14": http.StatusServiceUnavailable, // UNAVAILABLE
	"16": http.StatusUnauthorized,       // UNAUTHENTICATED
}

// statusError is the error that grpc-status and grpc-message tell, nil where
// they tell none.
func statusError(field func(name string) string) *apierror.Error {
	code := field("grpc-status")
	if code == "" || code == "0" {
		return nil
	}
	status, known := httpStatus[code]
	if !known {
		status = http.StatusInternalServerError
	}
	message, err := url.PathUnescape(field("grpc-message"))
	if err != nil {
		message = ""
	}
	if code == "8" && strings.Contains(message, "larger than max") { // gRPC's own limit of a message
		status = http.StatusRequestEntityTooLarge
	}
	return translate(failure{status: status, message: message, kind: "grpc-status " + code, retryAfter: retryAfter(field)})
}
