package extproc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/klauspost/compress/zstd"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
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

// inflated is a request body as it was before it was compressed; err is for the client.
type inflated struct {
	body []byte
	err  *apierror.Error
}

// inflate decodes the collected body on a goroutine of its own: a few kilobytes can become
// megabytes, which take a core a quarter of a second. It ends with the exchange.
func (x *exchange) inflate() {
	x.phase = phaseInflate
	x.runner.Timers.Set(run.TimerHandle, x.now, handleTimeout)

	// From here on the goroutine uses nothing of the exchange, except its inbox.
	s, in, r := x.s, x.inbox, &x.request
	requestID, encoding, body, take := r.id, r.encoding, r.body.bytes(), r.share.take
	x.driver.Go(func() {
		d := &inflated{}
		defer func() { in.send(d) }()
		defer func() {
			if p := recover(); p != nil {
				s.logPanic(requestID, p)
				d.err = panicked()
			}
		}()
		d.body, d.err = inflate(in.ctx, encoding, body, s.o.Config.Limits.MaxBodyBytes, take)
	})
}

// inflate decodes a request body by its content-encoding, up to limit bytes, until ctx ends. For each byte
// that comes out it takes [inflatedOf] of the memory budget.
func inflate(
	ctx context.Context, encoding string, body []byte, limit int64, take func(n int64) *apierror.Error,
) ([]byte, *apierror.Error) {
	var r io.Reader
	var err error
	switch encoding {
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
		out, err = io.ReadAll(reserving{ctx, io.LimitReader(r, limit+1), take})
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

// reserving is a reader that takes room for what it reads of the memory budget, until ctx ends.
type reserving struct {
	ctx  context.Context //nolint:containedctx // that of one read
	r    io.Reader
	take func(n int64) *apierror.Error
}

func (c reserving) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}

	n, err := c.r.Read(p)
	if refused := c.take(inflatedOf * int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}
