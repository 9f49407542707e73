package extproc

import (
	"math"
	"strings"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// metadataFields are fields of the namespace header.MetadataNamespace in protobuf's wire
// format: the entries of a google.protobuf.Struct, each name once. As Go values they are
// maps, which take 130 allocations for a request, most of them to be encoded.
type metadataFields []byte

// The numbers of the fields that are written here.
const (
	dynamicMetadata      protowire.Number = 8  // of ProcessingResponse
	typedDynamicMetadata protowire.Number = 13 // of ProcessingResponse
	structFields         protowire.Number = 1  // of Struct
	entryKey             protowire.Number = 1  // of a map's entry
	entryValue           protowire.Number = 2
	valueNumber          protowire.Number = 2 // of Value
	valueText            protowire.Number = 3
	valueSwitch          protowire.Number = 4
	valueStruct          protowire.Number = 5
	anyType              protowire.Number = 1 // of Any
	anyValue             protowire.Number = 2
)

// sizeOf is the size of a field of size bytes with its tag, which is one byte for all
// fields that are written here.
func sizeOf(size int) int { return 1 + protowire.SizeBytes(size) }

// appendLength appends the beginning of a field whose value has size bytes.
func appendLength(b []byte, field protowire.Number, size int) []byte {
	//nolint:gosec // a size
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

// appendEntry appends the beginning of a map's entry, up to its value of size bytes. The
// map is the field of this number.
func appendEntry(b []byte, field protowire.Number, key string, size int) []byte {
	b = appendLength(b, field, sizeOf(len(key))+sizeOf(size))
	b = protowire.AppendString(protowire.AppendTag(b, entryKey, protowire.BytesType), key)
	return appendLength(b, entryValue, size)
}

func (f *metadataFields) number(name string, n int) { f.fraction(name, float64(n)) }

func (f *metadataFields) fraction(name string, n float64) {
	b := protowire.AppendTag(appendEntry(*f, structFields, name, 1+8), valueNumber, protowire.Fixed64Type)
	*f = protowire.AppendFixed64(b, math.Float64bits(n))
}

func (f *metadataFields) text(name, s string) {
	s = strings.ToValidUTF8(s, "\ufffd")
	b := appendEntry(*f, structFields, name, sizeOf(len(s)))
	*f = append(appendLength(b, valueText, len(s)), s...)
}

func (f *metadataFields) flag(name string, on bool) {
	b := protowire.AppendTag(appendEntry(*f, structFields, name, 1+1), valueSwitch, protowire.VarintType)
	*f = protowire.AppendVarint(b, protowire.EncodeBool(on))
}

// addTo adds the fields to a message, and typed ones for usage, unless that is nil. They
// are the message's unknown fields: they have no getters before the message is sent.
func (f metadataFields) addTo(m *extprocv3.ProcessingResponse, usage *aidatav3.TokenUsage) {
	const namespace = header.MetadataNamespace
	value := sizeOf(len(f)) // of the namespace
	size := sizeOf(sizeOf(len(namespace)) + sizeOf(value))
	b := appendLength(make([]byte, 0, sizeOf(size)+spareMetadata), dynamicMetadata, size)
	b = appendLength(appendEntry(b, structFields, namespace, value), valueStruct, len(f))
	b = append(b, f...)
	if usage != nil {
		b = appendUsage(b, usage)
	}
	m.ProtoReflect().SetUnknown(b)
}

// appendUsage appends the usage of a reply, as typed dynamic metadata.
func appendUsage(b []byte, usage *aidatav3.TokenUsage) []byte {
	const name = "type.googleapis.com/envoy.data.ai.v3.TokenUsage"
	size := proto.Size(usage)
	b = appendEntry(b, typedDynamicMetadata, header.TokenUsageNamespace, sizeOf(len(name))+sizeOf(size))
	b = append(appendLength(b, anyType, len(name)), name...)
	// Its texts are valid UTF-8
	b, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(appendLength(b, anyValue, size), usage)
	return b
}
