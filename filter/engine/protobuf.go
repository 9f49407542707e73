package engine

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// message encodes one protobuf message, field by field. Zeros are written too:
// for fields with presence they differ from absence, for others they do not.
type message struct{ b []byte }

func (m *message) integer(field protowire.Number, n int64) {
	//nolint:gosec // two's complement is protobuf's form
	m.b = protowire.AppendVarint(protowire.AppendTag(m.b, field, protowire.VarintType), uint64(n))
}

func (m *message) number(field protowire.Number, x float64) {
	m.b = protowire.AppendFixed32(protowire.AppendTag(m.b, field, protowire.Fixed32Type), math.Float32bits(float32(x)))
}

func (m *message) boolean(field protowire.Number, v bool) {
	m.integer(field, int64(protowire.EncodeBool(v))) //nolint:gosec // 0 or 1
}

// text writes a string field. It writes nothing for "".
func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		m.b = protowire.AppendString(protowire.AppendTag(m.b, field, protowire.BytesType), s)
	}
}

// inner writes a submessage, which write fills in.
func (m *message) inner(field protowire.Number, write func(*message)) {
	var inner message
	write(&inner)
	m.b = protowire.AppendBytes(protowire.AppendTag(m.b, field, protowire.BytesType), inner.b)
}

func (m *message) ids(field protowire.Number, ids []harmony.Token) {
	// The size comes first, so the ids are gone through twice and not copied.
	//nolint:gosec // a size
	m.b = protowire.AppendVarint(protowire.AppendTag(m.b, field, protowire.BytesType), uint64(packedSize(ids)))
	for _, id := range ids {
		m.b = protowire.AppendVarint(m.b, uint64(id))
	}
}

// prompt writes a TokenizedInput. In the services of all engines it is a
// message with the ids in field 2.
func (m *message) prompt(field protowire.Number, ids []harmony.Token) {
	const idsField = 2
	size := packedSize(ids)
	inner := protowire.SizeTag(idsField) + protowire.SizeBytes(size)
	//nolint:gosec // a size
	m.b = protowire.AppendVarint(protowire.AppendTag(m.b, field, protowire.BytesType), uint64(inner))
	m.ids(idsField, ids)
}

func packedSize(ids []harmony.Token) int {
	size := 0
	for _, id := range ids {
		size += protowire.SizeVarint(uint64(id))
	}
	return size
}

// bias writes a map from token ids to floats, in the order of the ids. If
// stringKeys is set, the map's keys are strings.
func (m *message) bias(field protowire.Number, bias map[harmony.Token]float64, stringKeys bool) {
	for _, id := range slices.Sorted(maps.Keys(bias)) {
		m.inner(field, func(entry *message) {
			if stringKeys {
				entry.text(1, strconv.FormatUint(uint64(id), 10))
			} else {
				entry.integer(1, int64(id))
			}
			entry.number(2, bias[id])
		})
	}
}

// readFields calls field for every field of the message b with the encoded
// value. It returns false if b is not a valid message or if field returns
// false.
func readFields(b []byte, field func(number protowire.Number, kind protowire.Type, value []byte) bool) bool {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(number, kind, b[size:])
		if n < 0 || !field(number, kind, b[size:size+n]) {
			return false
		}
		b = b[size+n:]
	}
	return true
}

// appendVarints appends the ids of a repeated field, which may be packed or
// unpacked. It returns false if the field contains anything else.
func appendVarints(ids []harmony.Token, kind protowire.Type, value []byte) ([]harmony.Token, bool) {
	switch kind {
	case protowire.BytesType:
		value, _ = protowire.ConsumeBytes(value)
	case protowire.VarintType:
	default:
		return ids, false
	}
	for len(value) > 0 {
		v, n := protowire.ConsumeVarint(value)
		if n < 0 || v > maxCount {
			return ids, false
		}
		ids, value = append(ids, harmony.Token(v)), value[n:]
	}
	return ids, true
}

// eachFloat calls yield for every float of a repeated field, which may be
// packed or unpacked. It returns false if the field contains anything else.
func eachFloat(kind protowire.Type, value []byte, yield func(float64)) bool {
	switch kind {
	case protowire.BytesType:
		value, _ = protowire.ConsumeBytes(value)
	case protowire.Fixed32Type:
	default:
		return false
	}
	for len(value) > 0 {
		v, n := protowire.ConsumeFixed32(value)
		if n < 0 {
			return false
		}
		yield(float64(math.Float32frombits(v)))
		value = value[n:]
	}
	return true
}
