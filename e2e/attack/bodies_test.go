//go:build attack

package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// spaces is a reader of n bytes of JSON white space.
func spaces(n int64) io.Reader { return io.LimitReader(spaceReader{}, n) }

type spaceReader struct{}

func (spaceReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func zipped(r io.Reader) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.Copy(w, r) // to memory
	_ = w.Close()
	return b.Bytes()
}

func zstandard(r io.Reader, o ...zstd.EOption) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, o...)
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(w, r) // to memory
	_ = w.Close()
	return b.Bytes()
}

// encoded is an attack with a content encoding.
func encoded(name, want, encoding string, body func() []byte) attack {
	return attack{name: name, want: want, run: func(a *attempt) {
		a.check(a.send(http.MethodPost, chatPath, bytes.NewReader(body()), "Content-Encoding", encoding))
	}}
}

// head is the start of a request for [attempt.raw], with further lines.
func head(path string, lines ...string) string {
	all := append([]string{"POST " + path + " HTTP/1.1", "host: localhost", "x-tenant: attacker", "content-type: application/json"}, lines...)
	return strings.Join(all, "\r\n") + "\r\n\r\n"
}

// chunked writes a body in chunks of a size.
func chunked(body string, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

func bodyArea() area {
	body := chatBody(simple, "")
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	raw := func(name, want string, parts func() []string) attack {
		return attack{name: name, want: want, run: func(a *attempt) { a.checkRaw(a.raw(parts()...)) }}
	}

	chunkedHead := head(chatPath, "transfer-encoding: chunked")
	const gigabyte = 1 << 30
	all := []attack{
		encoded("gzip of 1 GB", "413", "gzip", func() []byte { return zipped(spaces(gigabyte)) }),
		encoded("zstd of 2 GB", "413", "zstd", func() []byte { return zstandard(spaces(2 * gigabyte)) }),
		encoded("gzip of 40 MB with a request behind", "413", "gzip", func() []byte { return zipped(io.MultiReader(spaces(40<<20), strings.NewReader(body))) }),
		encoded("zstd with a window of 128 MB", "2xx 4xx", "zstd", func() []byte { return zstandard(strings.NewReader(body), zstd.WithWindowSize(128<<20)) }),
		encoded("a million empty gzip members", "4xx", "gzip", func() []byte { return bytes.Repeat(zipped(strings.NewReader("")), 1_000_000) }),
		encoded("a million empty zstd frames", "4xx", "zstd", func() []byte {
			return bytes.Repeat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0}, 1_000_000)
		}),
		encoded("millions of empty zstd blocks", "4xx", "zstd", func() []byte {
			return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x58}, bytes.Repeat([]byte{0, 0, 0}, 5_000_000)...)
		}),
		encoded("gzip in half", "400", "gzip", func() []byte { return cut(zipped(strings.NewReader(body))) }),
		encoded("zstd in half", "400", "zstd", func() []byte { return cut(zstandard(strings.NewReader(body))) }),
		encoded("gzip that is none", "400", "gzip", func() []byte { return []byte(body) }),
		encoded("br", "415", "br", func() []byte { return []byte(body) }),
		encoded("an encoding that does not exist", "415", "x-"+strings.Repeat("e", 2000), func() []byte { return []byte(body) }),
		encoded("deflate of 1 GB", "4xx", "deflate", func() []byte { return zipped(spaces(gigabyte / 8)) }),
		encoded("gzip in gzip", "4xx", "gzip, gzip", func() []byte { return zipped(bytes.NewReader(zipped(strings.NewReader(body)))) }),
		encoded("six encodings", "4xx", "gzip, gzip, gzip, gzip, gzip, gzip", func() []byte { return zipped(strings.NewReader(body)) }),
		raw("chunks of one byte", "200", func() []string { return []string{chunkedHead, chunked(body, 1)} }),
		raw("chunks of one byte, 1 MB", "200 400", func() []string {
			return []string{chunkedHead, chunked(strings.Repeat(" ", million)+body, 1)}
		}),
		raw("a chunk extension of 100 KB", "200 400 413 431 closed", func() []string {
			return []string{chunkedHead, "1;x=" + strings.Repeat("y", 100_000) + "\r\n{\r\n", chunked(body[1:], 100)}
		}),
		raw("trailers", "200 400", func() []string {
			return []string{chunkedHead, strings.TrimSuffix(chunked(body, 50), "\r\n") + "x-tenant: victim\r\nx-harmony-engine: x\r\n\r\n"}
		}),
		raw("a chunk size of 2^64", "400 closed", func() []string { return []string{chunkedHead, "10000000000000000\r\n"} }),
		raw("a chunk size that is none", "400 closed", func() []string { return []string{chunkedHead, "xyz\r\n"} }),
		raw("a negative length", "400 closed", func() []string { return []string{head(chatPath, "content-length: -1"), body} }),
		raw("21 requests at once", "200", func() []string {
			return []string{strings.Repeat(head(chatPath, fmt.Sprint("content-length: ", len(body)))+body, 21)}
		}),
		raw("expect: 100-continue", "100 200", func() []string {
			return []string{head(chatPath, fmt.Sprint("content-length: ", len(body)), "expect: 100-continue"), body}
		}),
		raw("an expectation that does not exist", "200 417", func() []string {
			return []string{head(chatPath, fmt.Sprint("content-length: ", len(body)), "expect: everything"), body}
		}),
		raw("a body after GET", "2xx 4xx", func() []string {
			return []string{"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-tenant: attacker\r\ncontent-length: 5\r\n\r\nhello"}
		}),
		{name: "a body that stops, the client leaves", want: "idle again", run: func(a *attempt) {
			for range 20 {
				conn := a.dial()
				_, _ = fmt.Fprintf(conn, "%s%s", head(chatPath, "content-length: 1000000"), body)
				time.Sleep(5 * time.Millisecond)
				_ = conn.Close()
			}
			a.see("20 connections left")
		}},
		{name: "a body that stops", want: "408", heavy: true, run: func(a *attempt) { a.checkRaw(a.raw(head(chatPath, "content-length: 1000000"), body)) }},
		{name: "headers that stop", want: "408 closed", heavy: true, run: func(a *attempt) { a.checkRaw(a.raw("POST " + chatPath + " HTTP/1.1\r\nhost: x\r\n")) }},
	}
	return area{name: "bodies", attacks: all}
}
