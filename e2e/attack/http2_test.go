//go:build attack

package attack

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Types and flags of HTTP/2 frames, RFC 9113.
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
	frameWindow   = 8
	frameContinue = 9
	endStream     = 1
	endHeaders    = 4
)

// frame appends an HTTP/2 frame.
func frame(dst []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	dst = binary.BigEndian.AppendUint32(dst, stream)
	return append(dst, payload...)
}

// fields encodes header fields without compression, RFC 7541.
func fields(pairs ...string) []byte {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = append(b, 0)
		for _, text := range pairs[i : i+2] {
			if len(text) < 127 {
				b = append(b, byte(len(text)))
			} else {
				b = append(b, 127)
				n := len(text) - 127
				for ; n >= 128; n >>= 7 {
					b = append(b, byte(n)|128)
				}
				b = append(b, byte(n))
			}
			b = append(b, text...)
		}
	}
	return b
}

func chatFields2(more ...string) []byte {
	return fields(append([]string{":method", "POST", ":scheme", "http", ":authority", "localhost", ":path", chatPath, "x-tenant", "attacker", "content-type", "application/json"}, more...)...)
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// http2 writes frames to a new connection until it is closed, and returns the number
// of frames by kind that come back within a silence of 1 s.
func (a *attempt) http2(settings []byte, frames func(send func([]byte) bool)) map[byte]int {
	a.Helper()
	conn := a.dial()
	defer conn.Close()

	go func() {
		send := func(b []byte) bool {
			_, err := conn.Write(b)
			return err == nil
		}
		if send(frame([]byte(preface), frameSettings, 0, 0, settings)) {
			frames(send)
		}
	}()

	got := map[byte]int{}
	header := make([]byte, 9)

	for {
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadFull(conn, header); err != nil {
			return got
		}
		got[header[3]]++
		if _, err := io.CopyN(io.Discard, conn, int64(header[0])<<16|int64(header[1])<<8|int64(header[2])); err != nil {
			return got
		}
	}
}

// overHTTP2 is a client with prior knowledge of HTTP/2.
func (a *attempt) overHTTP2() *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	a.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func http2Area() area {
	body := []byte(chatBody(simple, ""))
	show := func(a *attempt, got map[byte]int) {
		a.see("%d headers, %d data, %d resets, %d GOAWAY", got[frameHeaders], got[frameData], got[frameReset], got[7])
	}

	survives := func(name string, settings []byte, frames func(send func([]byte) bool)) attack {
		return attack{name: name, want: "others are served", run: func(a *attempt) { show(a, a.http2(settings, frames)) }}
	}

	storm := func(send func([]byte) bool, one func(stream uint32) []byte) {
		for i := range uint32(20_000) {
			if !send(one(2*i + 1)) {
				return
			}
		}
	}

	return area{name: "http2", attacks: []attack{
		{name: "90 streams on a connection", want: "200", run: func(a *attempt) {
			client := a.overHTTP2()
			a.check(a.atOnce(90, func() answerOf {
				req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, a.URL+chatPath, bytes.NewReader(body))
				if err != nil {
					return answerOf{text: err.Error()}
				}
				req.Header = http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"attacker"}}
				resp, err := client.Do(req)
				if err != nil {
					return answerOf{text: err.Error()}
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return answerOf{resp.StatusCode, string(text), resp.Header}
			}))
		}},
		{name: "trailers", want: "200 4xx", run: func(a *attempt) {
			req := &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"attacker"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: -1, Trailer: http.Header{"X-Tenant": {"victim"}}}
			req.URL, _ = url.Parse(a.URL + chatPath)
			resp, err := a.overHTTP2().Do(req)
			if err != nil {
				a.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			a.check(answerOf{resp.StatusCode, string(text), resp.Header})
		}},
		survives("rapid reset", nil, func(send func([]byte) bool) {
			storm(send, func(id uint32) []byte {
				b := frame(nil, frameHeaders, endHeaders, id, chatFields2())
				return frame(b, frameReset, 0, id, []byte{0, 0, 0, 8})
			})
		}),
		survives("a reset after the body", nil, func(send func([]byte) bool) {
			storm(send, func(id uint32) []byte {
				b := frame(nil, frameHeaders, endHeaders, id, chatFields2())
				b = frame(b, frameData, endStream, id, body)
				return frame(b, frameReset, 0, id, []byte{0, 0, 0, 8})
			})
		}),
		survives("a wrong length", nil, func(send func([]byte) bool) {
			b := frame(nil, frameHeaders, endHeaders, 1, chatFields2("content-length", "7"))
			send(frame(b, frameData, endStream, 1, body))
		}),
		survives("no window", []byte{0, 4, 0, 0, 0, 0}, func(send func([]byte) bool) {
			for i := range uint32(50) {
				b := frame(nil, frameHeaders, endHeaders, 2*i+1, chatFields2())
				send(frame(b, frameData, endStream, 2*i+1, []byte(chatBody(`"NOTHINK\nWORDS 3000"`, `,"stream":true`))))
			}
		}),
		survives("a flood of settings", nil, func(send func([]byte) bool) {
			storm(send, func(uint32) []byte { return frame(nil, frameSettings, 0, 0, []byte{0, 4, 0, 0, 255, 255}) })
		}),
		survives("a flood of pings", nil, func(send func([]byte) bool) {
			storm(send, func(uint32) []byte { return frame(nil, framePing, 0, 0, make([]byte, 8)) })
		}),
		survives("a flood of empty data", nil, func(send func([]byte) bool) {
			send(frame(nil, frameHeaders, endHeaders, 1, chatFields2()))
			storm(send, func(uint32) []byte { return frame(nil, frameData, 0, 1, nil) })
		}),
		survives("continuations without end", nil, func(send func([]byte) bool) {
			send(frame(nil, frameHeaders, 0, 1, chatFields2()))
			storm(send, func(id uint32) []byte {
				return frame(nil, frameContinue, 0, 1, fields("x-a", strconv.FormatUint(uint64(id), 10)))
			})
		}),
		survives("a window beyond its limit", nil, func(send func([]byte) bool) {
			send(frame(nil, frameHeaders, endHeaders, 1, chatFields2()))
			storm(send, func(uint32) []byte { return frame(nil, frameWindow, 0, 1, []byte{0x7f, 255, 255, 255}) })
		}),
		survives("headers of 1 MB", nil, func(send func([]byte) bool) {
			send(frame(nil, frameHeaders, 0, 1, chatFields2("x-a", strings.Repeat("a", 10_000))))
			for range 100 {
				send(frame(nil, frameContinue, 0, 1, fields("x-a", strings.Repeat("a", 10_000))))
			}
		}),
		survives("forbidden headers", nil, func(send func([]byte) bool) {
			b := frame(nil, frameHeaders, endHeaders|endStream, 1, chatFields2("connection", "close", "transfer-encoding", "chunked", "x-A", "upper"))
			b = frame(b, frameHeaders, endHeaders|endStream, 3, chatFields2("x-a", "b\r\nx-injected: y", ":path", "/sim/requests"))
			send(b)
		}),
	}}
}
