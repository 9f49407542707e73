package h2

import "golang.org/x/net/http2/hpack"

// block is a block of fields, which comes as HEADERS and CONTINUATION.
type block struct {
	stream uint32
	flags  byte // of its HEADERS
	open   bool // parts are missing
	bytes  []byte
}

// add adds a part, and reports whether the block is complete.
func (b *block) add(f *frame) (whole bool, err error) {
	if f.kind == frameHeaders {
		if err := f.unpad(); err != nil {
			return false, err
		}
		if f.flags&flagPriority != 0 {
			if len(f.payload) < 5 {
				return false, &ConnectionError{CodeFrameSize, "HEADERS"}
			}
			f.payload = f.payload[5:]
		}
		b.stream, b.flags, b.bytes = f.stream, f.flags, b.bytes[:0]
	} else if !b.open || f.stream != b.stream || len(f.payload) == 0 {
		return false, &ConnectionError{CodeProtocol, "CONTINUATION"}
	}
	b.open = true
	if len(b.bytes)+len(f.payload) > headerLimit {
		return false, &ConnectionError{CodeCalm, "a block of fields is too large"}
	}
	b.bytes = append(b.bytes, f.payload...)
	b.open = f.flags&flagEndHeaders == 0
	return !b.open, nil
}

// decode hands the fields of a complete block to a decoder.
func (b *block) decode(d *hpack.Decoder) error {
	_, err := d.Write(b.bytes)
	if err == nil {
		err = d.Close()
	}
	if cap(b.bytes) > maxFrame {
		b.bytes = nil
	}
	if err != nil {
		return &ConnectionError{CodeCompression, "fields that cannot be decoded"}
	}
	return nil
}
