package extproc

import (
	"bytes"
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
		for _, encoding := range []string{"gzip", "zstd", "br", "identity"} {
			var taken int64
			out, err := inflate(encoding, body, limit, func(n int64) *apierror.Error {
				taken += n
				return nil
			})
			switch {
			case err != nil && err.Status != 400 && err.Status != 413 && err.Status != 415:
				t.Fatalf("%s: %v", encoding, err)
			case err == nil && encoding != "identity" && (len(out) > limit || taken < int64(len(out))):
				t.Fatalf("%s: %d bytes, %d taken", encoding, len(out), taken)
			case taken > inflatedOf*(limit+1):
				t.Fatalf("%s: %d bytes were read", encoding, taken)
			}
		}
		if len(body) > limit {
			return
		}
		for encoding, encoded := range map[string][]byte{"gzip": []byte(gzipped(string(body))), "zstd": zstandard(t, body)} {
			out, err := inflate(encoding, encoded, limit, func(int64) *apierror.Error { return nil })
			if err != nil || !bytes.Equal(out, body) {
				t.Fatalf("%s: %d bytes became %d: %v", encoding, len(body), len(out), err)
			}
		}
	})
}
