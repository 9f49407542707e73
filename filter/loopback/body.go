package loopback

import (
	"bytes"
	"io"
)

// maxTogether is the length in bytes up to which a request body is written together
// with its headers. Both fit into the transport's buffer of 4 KB, and the transport
// keeps such a body for as long as the answer lasts.
const maxTogether = 2 << 10

// bodyOf returns a request body of these bytes. It cannot be read again, so the
// transport never repeats a call by itself.
//
// The transport writes the headers first, and alone, unless it knows that the body is
// in memory. Together they are one write, and one read of Envoy.
func bodyOf(b []byte) io.ReadCloser {
	if len(b) <= maxTogether {
		return io.NopCloser(bytes.NewReader(b))
	}
	return &readOnce{rest: b}
}

// readOnce is a request body whose memory is released as it is read.
type readOnce struct{ rest []byte }

func (r *readOnce) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		r.rest = nil
	}
	return n, nil
}

func (r *readOnce) Close() error {
	r.rest = nil
	return nil
}
