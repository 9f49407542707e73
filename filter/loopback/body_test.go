package loopback

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// A short request is one write: Envoy reads it at once, and its engine does too.
func TestShortRequestIsOneWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "loopback.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	reads := make(chan string)
	go readOnceEach(listener, reads)
	client := newTestClient(t, config.Defaults(), "unix://"+path)
	body := `{"prompt":[` + strings.Repeat("1,", maxTogether/2-7) + `1]}`
	for range 20 {
		c := client.Dial(t.Context(), http.Header{}, run.Target{Engine: "main"})
		c.send(&engine.HTTPRequest{Path: "/generate", Body: []byte(body)})
		if first := <-reads; !strings.HasSuffix(first, body) {
			t.Fatalf("the first read has %d bytes, and not the body of %d", len(first), len(body))
		}
		c.Cancel()
	}
}

// readOnceEach sends what the first read of each connection returns.
func readOnceEach(listener net.Listener, reads chan<- string) {
	buffer := make([]byte, 1<<16)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		n, _ := conn.Read(buffer)
		reads <- string(buffer[:n])
		_ = conn.Close()
	}
}

func TestBodyOf(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, maxTogether, maxTogether + 1, 1 << 20} {
		sent := bytes.Repeat([]byte("x"), size)
		r := bodyOf(sent)
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: %d bytes, %v", size, len(got), err)
		}
		if once, ok := r.(*readOnce); ok && once.rest != nil {
			t.Errorf("%d bytes are kept after they were read", size)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%d bytes: close: %v", size, err)
		}
	}
}
