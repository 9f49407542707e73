package extproc

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"

	"github.com/klauspost/compress/zstd"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

const (
	// maxWindow bounds the window that a frame of a zstd body may declare: what RFC 9659 lets
	// clients use. Without it, 16 bytes could ask for gigabytes. Where a frame has one segment,
	// its window is its content.
	maxWindow = 8 << 20
	// zstdBytes is what decoding takes beside its output: the window, and two blocks with what
	// is needed to decode one.
	zstdBytes = maxWindow + 1<<20
)

// inflate decodes a request body by its content-encoding, up to limit bytes. For each byte
// that comes out it takes [inflatedOf] of the memory budget.
func inflate(encoding string, body []byte, limit int64, take func(n int64) *apierror.Error) ([]byte, *apierror.Error) {
	var r io.Reader
	var err error
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "zstd":
		// The window is memory that no byte of the output shows. A decoder of its own, without
		// goroutines: that of the package would keep the window.
		if refused := take(zstdBytes); refused != nil {
			return nil, refused
		}
		defer func() { _ = take(-zstdBytes) }()
		var z *zstd.Decoder
		z, err = zstd.NewReader(
			bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
		)
		if err == nil {
			defer z.Close()
			r = z
		}
	default:
		return nil, apierror.New(http.StatusUnsupportedMediaType, "unsupported_encoding", "",
			"The content-encoding %.64q is not supported. Send gzip, zstd or no encoding.", encoding)
	}

	// One byte more than the limit shows that there is more.
	var out []byte
	if err == nil {
		out, err = io.ReadAll(reserving{io.LimitReader(r, limit+1), take})
	}

	if refused := new(apierror.Error); errors.As(err, &refused) {
		return nil, refused
	}
	// Which of the two errors it is depends on whether the frame has one segment.
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
			"A frame of the zstd body has a window of more than %d bytes. Compress with a smaller window: "+
				"as a stream, and without long distance matching.", maxWindow)
	}
	if int64(len(out)) > limit {
		return nil, apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
			"The decoded request body is larger than %d bytes. Send less history or smaller attachments.", limit)
	}
	if err != nil {
		return nil, apierror.Invalid("", "The request body is not valid %s.", encoding).With(err)
	}
	return out, nil
}

// reserving is a reader that takes room for what it reads of the memory budget.
type reserving struct {
	r    io.Reader
	take func(n int64) *apierror.Error
}

func (c reserving) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if refused := c.take(inflatedOf * int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}
