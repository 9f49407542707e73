package engine

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// grpcInRoom and grpcHandedOver are the gRPC dialects of engines that
// disaggregate.
type (
	grpcInRoom struct {
		*grpcDialect
		inRoom
	}
	grpcHandedOver struct {
		*grpcDialect
		handedOver
		// transfer is the field of kv_transfer_params, JSON text, in a
		// Complete.
		transfer protowire.Number
	}
)

func (d grpcInRoom) NewPrefillReader(leg *Request) PrefillReader {
	return newRoomReader(d, leg)
}

func (d grpcHandedOver) NewPrefillReader(*Request) PrefillReader {
	return &completeReader{dialect: d}
}

// completeReader reads a prefill leg's answer that is one Complete.
type completeReader struct {
	dialect grpcHandedOver
	frames  frames
	params  []byte
	usage   Usage
	givenUp bool
}

func (r *completeReader) Feed(p []byte) *apierror.Error {
	for {
		m, rest, ok := r.frames.next(p)
		if !ok {
			if r.frames.fault != "" {
				return unreadable(r.frames.fault)
			}
			return nil
		}
		p = rest
		if !r.read(m) {
			return notProtobuf()
		}
	}
}

// read takes one GenerateResponse; false if it is none.
func (r *completeReader) read(m []byte) bool {
	return readFields(m, func(number protowire.Number, kind protowire.Type, value []byte) bool {
		if number != r.dialect.complete.field || kind != protowire.BytesType {
			return true
		}
		complete, _ := protowire.ConsumeBytes(value)
		return readFields(complete, r.take)
	})
}

// take takes a field of the Complete.
func (r *completeReader) take(number protowire.Number, kind protowire.Type, value []byte) bool {
	switch {
	case number == r.dialect.transfer && kind == protowire.BytesType:
		params, _ := protowire.ConsumeBytes(value)
		r.params = append([]byte(nil), params...)
	case number == r.dialect.complete.finish && kind == protowire.BytesType:
		reason, _ := protowire.ConsumeBytes(value)
		r.givenUp = givesUp(grpcFinish(reason))
	case number == r.dialect.complete.cached && kind == protowire.VarintType:
		if n, _ := protowire.ConsumeVarint(value); n <= maxCount {
			r.usage.CachedTokens = int(n)
		}
	}
	return true
}

func (r *completeReader) End(trailer func(string) string) (*Transfer, *apierror.Error) {
	if err := statusError(trailer); err != nil {
		return nil, err
	}
	if r.givenUp {
		return nil, promptGivenUp()
	}
	return newTransfer(r.params, r.usage)
}
