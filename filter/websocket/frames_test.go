package websocket

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// clientFrame is a frame as clients have to write it, with a mask that changes nothing.
func clientFrame(first byte, payload string) string {
	return string([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
}

// FuzzFrames sends arbitrary bytes after an upgrade, and leaves. The connection ends for one of its
// reasons, and holds nothing then. What came back before is JSON, in frames without a mask.
func FuzzFrames(f *testing.F) {
	const fin, text, ping, end = 0x80, 1, 9, 8
	hi := `{"type":"response.create","model":"m","input":"x"}`
	f.Add([]byte(clientFrame(fin|text, hi)))
	f.Add([]byte(clientFrame(text, hi[:9]) + clientFrame(fin|ping, "p") + clientFrame(0, hi[9:20]) + clientFrame(fin, hi[20:])))
	f.Add([]byte(clientFrame(fin|text, `{"type":"response.cancel"}`) + clientFrame(fin|end, "\x03\xe8bye")))
	f.Add([]byte(clientFrame(0x40|fin|text, hi)))
	f.Add([]byte{fin | text, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, '{'})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))

	s := start(f, func(l *Limits) { l.MessageBytes = 400 }, hello)
	// There are not as many ports as inputs.
	socket := filepath.Join(f.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		f.Fatal(err)
	}
	web := &http.Server{Handler: s.Server, ReadHeaderTimeout: patience}
	go func() { _ = web.Serve(listener) }()
	f.Cleanup(func() { _ = web.Close() })

	ended := func() []endReason {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.reasons)
	}

	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > 600 {
			t.Skip("it may have more events than are taken at once")
		}
		before := len(ended())
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		head := "GET " + Path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
		if _, err := io.WriteString(conn, head+string(sent)); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.UnixConn).CloseWrite()

		in := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("no upgrade: %v, %v", resp, err)
		}
		readFrames(t, in)

		for deadline := time.Now().Add(patience); len(ended()) == before; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatal("the connection does not end")
			}
		}
		if reason := ended()[before]; reason != reasonClient && reason != reasonMessage {
			t.Errorf("it ends for %s", reason)
		}
		if left := s.memory.Load(); left != 0 {
			t.Errorf("%d bytes are held", left)
		}
	})
}

// readFrames reads what the server sends, until the connection ends.
func readFrames(t *testing.T, in *bufio.Reader) {
	t.Helper()
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		if head[1] >= 0x80 {
			t.Fatalf("a frame has a mask: %x", head)
		}

		n := int(head[1])
		if n == 126 {
			wide := make([]byte, 2)
			if _, err := io.ReadFull(in, wide); err != nil {
				return
			}
			n = int(wide[0])<<8 | int(wide[1])
		}

		payload := make([]byte, n)
		if _, err := io.ReadFull(in, payload); err != nil {
			return
		}
		if head[0]&0xf == 1 && !gjson.ValidBytes(payload) {
			t.Fatalf("an event is no JSON: %q", payload)
		}
	}
}
