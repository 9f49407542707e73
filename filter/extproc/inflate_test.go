package extproc

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// zstandard returns a text as one zstd frame.
func zstandard(t testing.TB, text []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	return w.EncodeAll(text, nil)
}

// TestWindows has frames of zstd with windows of all sizes: what is allocated was reserved
// before, and a window that is too large is refused by that name before there is any.
func TestWindows(t *testing.T) { // not parallel: allocations are counted
	text := strings.Repeat("a text ", 100)
	frame := func(o ...zstd.EOption) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, o...)
		if err != nil {
			t.Fatal(err)
		}
		// In two parts, so that the frame does not say how long its content is.
		for _, part := range []string{text[:100], text[100:]} {
			if _, err := w.Write([]byte(part)); err != nil || w.Flush() != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	whole, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = whole.Close() }()

	for name, c := range map[string]struct {
		body  []byte
		fails bool
	}{
		"a kilobyte":            {frame(zstd.WithWindowSize(1 << 10)), false},
		"a megabyte":            {frame(zstd.WithWindowSize(1 << 20)), false},
		"the largest":           {frame(zstd.WithWindowSize(maxWindow)), false},
		"frames":                {append(frame(zstd.WithWindowSize(1<<10)), frame(zstd.WithWindowSize(maxWindow))...), false},
		"too large":             {frame(zstd.WithWindowSize(2 * maxWindow)), true},
		"half a gigabyte":       {frame(zstd.WithWindowSize(zstd.MaxWindowSize)), true},
		"too large, the second": {append(frame(zstd.WithWindowSize(1<<10)), frame(zstd.WithWindowSize(2*maxWindow))...), true},
		"one segment":           {whole.EncodeAll([]byte(text), nil), false},
		"one segment, large":    {whole.EncodeAll(make([]byte, maxWindow+1), nil), true},
		"60 GB in 16 bytes":     {append([]byte("\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x0f\x00\x00\x00"), 1, 0, 0), true},
	} {
		var before, after runtime.MemStats
		var held, most int64
		runtime.ReadMemStats(&before)
		out, err := inflate(t.Context(), "zstd", c.body, 32<<20, func(n int64) *apierror.Error {
			held += n
			most = max(most, held)
			return nil
		})
		runtime.ReadMemStats(&after)

		switch {
		case !c.fails && (err != nil || !strings.HasSuffix(string(out), text)):
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		case c.fails && (err == nil || err.Status != 413 || !strings.Contains(err.Message, "window of more than 8388608 bytes")):
			t.Errorf("%s: %v", name, err)
		}
		if n := int64(after.TotalAlloc - before.TotalAlloc); n > most || c.fails && n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated, and %d reserved", name, n, most)
		}
		if held != inflatedOf*int64(len(out)) && err == nil {
			t.Errorf("%s: %d bytes are held of %d", name, held, len(out))
		}
	}
}

// TestInflateStops ends the context while a body is decoded, which then takes no more memory.
func TestInflateStops(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("a"), 8<<20)
	for encoding, body := range map[string][]byte{"gzip": []byte(gzipped(string(text))), "zstd": zstandard(t, text)} {
		ctx, cancel := context.WithCancel(t.Context())
		var most int64
		_, err := inflate(ctx, encoding, body, 32<<20, func(n int64) *apierror.Error {
			most = max(most, n)
			if encoding == "gzip" || n != zstdBytes {
				cancel()
			}
			return nil
		})
		cancel()
		if err == nil || !errors.Is(err, context.Canceled) || most > zstdBytes {
			t.Errorf("%s: %v, with pieces of up to %d bytes", encoding, err, most)
		}
	}
}

// FuzzInflate decodes arbitrary bodies: what comes out is bounded and all of it is
// taken of the budget, errors are the client's, and what was encoded comes back.
func FuzzInflate(f *testing.F) {
	const limit = 1 << 16
	for _, text := range []string{"", "{}", string(bytes.Repeat([]byte("a"), limit)), string(bytes.Repeat([]byte("a"), 4*limit))} {
		f.Add([]byte(gzipped(text)))
		f.Add(zstandard(f, []byte(text)))
		f.Add([]byte(gzipped(text) + gzipped(text)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, encoding := range []string{"gzip", "zstd", "br"} {
			var taken int64
			out, err := inflate(t.Context(), encoding, body, limit, func(n int64) *apierror.Error {
				taken += n
				return nil
			})
			switch {
			case err != nil && err.Status != 400 && err.Status != 413 && err.Status != 415:
				t.Fatalf("%s: %v", encoding, err)
			case err == nil && (len(out) > limit || taken < int64(len(out))):
				t.Fatalf("%s: %d bytes, %d taken", encoding, len(out), taken)
			case taken > inflatedOf*(limit+1):
				t.Fatalf("%s: %d bytes were read", encoding, taken)
			}
		}
		if len(body) > limit {
			return
		}
		for encoding, encoded := range map[string][]byte{"gzip": []byte(gzipped(string(body))), "zstd": zstandard(t, body)} {
			out, err := inflate(t.Context(), encoding, encoded, limit, func(int64) *apierror.Error { return nil })
			if err != nil || !bytes.Equal(out, body) {
				t.Fatalf("%s: %d bytes became %d: %v", encoding, len(body), len(out), err)
			}
		}
	})
}
