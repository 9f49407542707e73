package extproc

import (
	"bytes"
	"math/rand/v2"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// bodyKinds are the messages that have a piece of a body.
var bodyKinds = map[string]func(s *sender, p []byte, end bool){
	"request": (*sender).requestBody, "response": (*sender).responseBody, "local": (*sender).localBody,
}

// checkCodec compares what the codec writes with what protobuf does.
func checkCodec(t *testing.T, what any, m *extprocv3.ProcessingResponse) {
	t.Helper()
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Codec().Marshal(m)
	if err != nil {
		t.Fatalf("%v: %v", what, err)
	}
	defer data.Free()
	if got := data.Materialize(); !bytes.Equal(got, want) {
		t.Errorf("%v: the codec writes %.80q, protobuf %.80q", what, got, want)
	}
}

// TestCodecPieces has pieces of all sizes around those at which a length takes one byte more.
func TestCodecPieces(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, maxPiece)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	for name, add := range bodyKinds {
		for _, around := range []int{0, 120, 1 << 10, 1 << 14, maxPiece} {
			for size := max(0, around-24); size <= min(around+16, maxPiece); size++ {
				for _, end := range []bool{false, true} {
					s := newSender()
					add(&s, text[:size], end)
					if _, piece := pieceOf(s.last()); piece == nil {
						t.Fatalf("%s: it is no piece", name)
					}
					checkCodec(t, []any{name, size, end}, s.last())
				}
			}
		}
	}
}

// TestCodecOtherFields has pieces in messages that have one more field, for each field
// that Envoy's API has.
func TestCodecOtherFields(t *testing.T) {
	t.Parallel()
	fields := 0
	for name, add := range bodyKinds {
		// The messages on the way to the piece differ in the fields that they have.
		for depth := range maxPath + 1 {
			for i := 0; ; i++ {
				s := newSender()
				add(&s, []byte("piece"), true)
				m := messageAt(s.last().ProtoReflect(), depth)
				if m == nil || i == m.Descriptor().Fields().Len() {
					break
				}
				field := m.Descriptor().Fields().Get(i)
				setField(t, m, field)
				checkCodec(t, []any{name, field.FullName()}, s.last())
				fields++
			}
		}
	}
	if fields < 80 {
		t.Errorf("only %d fields were set", fields)
	}
	for name, add := range bodyKinds {
		s := newSender()
		add(&s, []byte("piece"), true)
		var f metadataFields
		f.text("model", "m")
		f.addTo(s.last(), nil)
		checkCodec(t, name+" with metadata", s.last())
	}
}

// messageAt returns the message that is so many fields below m; nil if there is none.
func messageAt(m protoreflect.Message, depth int) protoreflect.Message {
	for range depth {
		var next protoreflect.Message
		m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if field.Kind() == protoreflect.MessageKind {
				next = v.Message()
			}
			return next == nil
		})
		if m = next; m == nil {
			return nil
		}
	}
	return m
}

// setField sets a field to a value that is not its default one.
func setField(t *testing.T, m protoreflect.Message, field protoreflect.FieldDescriptor) {
	t.Helper()
	switch {
	case field.IsMap():
		entries := m.Mutable(field).Map()
		entries.Set(protoreflect.ValueOfString("key").MapKey(), entries.NewValue())
	case field.IsList():
		values := m.Mutable(field).List()
		values.Append(values.NewElement())
	case field.Kind() == protoreflect.MessageKind:
		m.Set(field, m.NewField(field))
	case field.Kind() == protoreflect.BoolKind:
		m.Set(field, protoreflect.ValueOfBool(true))
	case field.Kind() == protoreflect.BytesKind:
		m.Set(field, protoreflect.ValueOfBytes([]byte("other bytes")))
	case field.Kind() == protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(1))
	default:
		t.Fatalf("%s: set it here as well", field.FullName())
	}
}

// TestCodecOtherMessages has messages without a piece, and values of other types.
func TestCodecOtherMessages(t *testing.T) {
	t.Parallel()
	for _, m := range []*extprocv3.ProcessingResponse{
		nil,
		{},
		requestTrailersReply(), responseHeadersReply(nil), localHeaders(nil),
		{Response: &extprocv3.ProcessingResponse_ResponseBody{}},
		{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}},
		{Response: &extprocv3.ProcessingResponse_StreamedImmediateResponse{}},
	} {
		checkCodec(t, m, m)
	}
	if _, err := Codec().Marshal("no message"); err == nil {
		t.Error("a string was written")
	}
}

// BenchmarkSend is what gRPC takes to write the message of a token.
func BenchmarkSend(b *testing.B) {
	c, s, p := Codec(), newSender(), make([]byte, 220)
	b.ReportAllocs()
	for b.Loop() {
		s.reset()
		s.responseBody(p, false)
		data, err := c.Marshal(s.last())
		if err != nil {
			b.Fatal(err)
		}
		data.Free()
	}
}

// TestCodecBuffers shows that a piece has a buffer of about its size: the largest ones wait by
// the hundred, for clients that do not read.
func TestCodecBuffers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2 << 10, 10 << 10, 30 << 10, 33 << 10, maxPiece} {
		s := newSender()
		s.localBody(make([]byte, size), false)
		data, err := Codec().Marshal(s.last())
		if err != nil {
			t.Fatal(err)
		}
		if buffer := cap(data[0].ReadOnlyData()); buffer > 2*size+4<<10 {
			t.Errorf("a piece of %d bytes has a buffer of %d", size, buffer)
		}
		data.Free()
	}
}
