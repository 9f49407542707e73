package engine

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// cutAt cuts bytes into pieces of the given sizes, one after the other and over again.
func cutAt(p, sizes []byte) (pieces [][]byte) {
	for i := 0; len(p) > 0; i++ {
		n := len(p)
		if len(sizes) > 0 {
			n = min(n, int(sizes[i%len(sizes)]))
		}
		if n == 0 && !slices.ContainsFunc(sizes, func(b byte) bool { return b > 0 }) {
			n = len(p)
		}
		pieces = append(pieces, p[:n])
		p = p[n:]
	}
	return pieces
}

// dataLines are the values of the data lines of a stream that arrives in pieces.
func dataLines(pieces ...[]byte) (values []string) {
	var e eventLines
	for _, p := range pieces {
		for {
			data, rest, ok := e.next(p)
			if !ok {
				break
			}
			values = append(values, string(data))
			p = rest
		}
	}
	if data, ok := e.flush(); ok {
		values = append(values, string(data))
	}
	return values
}

// FuzzEventLines shows that server-sent events are the same in any pieces, and what a
// search of the whole text finds.
func FuzzEventLines(f *testing.F) {
	f.Add([]byte("data: {\"a\":1}\n\ndata: [DONE]\n\n"), []byte{1})
	f.Add([]byte(": comment\r\ndata:x\r\ndata:\r\n\r\nevent: y\ndata:  two spaces\r\rdata: z"), []byte{3, 0, 7})
	f.Add([]byte("\n\r\ndat\na: x\ndata: \r"), []byte{})
	f.Fuzz(func(t *testing.T, body, sizes []byte) {
		var want []string
		for line := range bytes.SplitSeq(body, []byte("\n")) {
			if value, ok := strings.CutPrefix(string(line), "data:"); ok {
				want = append(want, strings.TrimPrefix(strings.TrimSuffix(value, "\r"), " "))
			}
		}
		for _, pieces := range [][][]byte{{body}, cutAt(body, sizes)} {
			if got := dataLines(pieces...); !slices.Equal(got, want) {
				t.Errorf("%d pieces: %q, want %q", len(pieces), got, want)
			}
		}
	})
}
