package filter

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"

	"github.com/klauspost/compress/zstd"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// maxWindow bounds the memory that a zstd body can make its reader take.
const maxWindow = 8 << 20

// inflate decodes a request body by its content-encoding, up to limit bytes,
// all of which it claims.
func inflate(encoding string, body []byte, limit int64, claim func(n int) bool) ([]byte, *apierror.Error) {
	var r io.Reader
	var err error
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "zstd":
		var z *zstd.Decoder
		z, err = zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err == nil {
			defer z.Close()
			r = z
		}
	default:
		return nil, apierror.New(http.StatusUnsupportedMediaType, "unsupported_encoding", "", "content-encoding %.64q is not understood: send gzip, zstd or no encoding", encoding)
	}
	var out []byte
	if err == nil {
		out, err = io.ReadAll(claimed{io.LimitReader(r, limit+1), claim})
	}
	if errors.Is(err, errOverloaded) {
		return nil, overloaded()
	}
	if int64(len(out)) > limit || errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "", "the decoded request body is larger than %d bytes: send less history or smaller attachments", limit)
	}
	if err != nil {
		return nil, apierror.Invalid("", "the request body is not valid %s", encoding).With(err)
	}
	return out, nil
}

var errOverloaded = errors.New("no room in the budget")

// claimed is a reader that claims what it reads.
type claimed struct {
	r     io.Reader
	claim func(n int) bool
}

func (c claimed) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if !c.claim(n) {
		return 0, errOverloaded
	}
	return n, err
}
