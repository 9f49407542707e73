package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// pair returns a quiet socket and its peer.
func pair(t *testing.T, network string) (*quiet, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := (&net.Dialer{}).DialContext(t.Context(), network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	s, ok, err := newQuiet(c)
	if !ok || err != nil {
		t.Fatalf("no socket: %v", err)
	}
	return s.(*quiet), peer
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			q, peer := pair(t, network)
			defer q.close()
			defer q.stop()
			var p [8]byte
			if n, err := q.poll(p[:]); n != 0 || err != nil {
				t.Fatalf("%d bytes, %v of nothing", n, err)
			}
			for range 3 { // each wait is armed anew
				go func() { _, _ = peer.Write([]byte("ab")) }()
				if err := q.wait(); err != nil {
					t.Fatal(err)
				}
				if n, err := io.ReadFull(reads{q}, p[:2]); err != nil || string(p[:n]) != "ab" {
					t.Fatalf("%q, %v", p[:n], err)
				}
			}
			big := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // more than a socket holds
			written := make(chan error, 1)
			go func() {
				_, err := q.Write(big)
				written <- err
			}()
			got := make([]byte, len(big))
			if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, big) {
				t.Fatalf("other bytes: %v", err)
			}
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			_ = peer.Close()
			if err := q.wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := q.poll(p[:]); !errors.Is(err, io.EOF) {
				t.Errorf("%v at the end", err)
			}
		})
	}
}

// reads is a quiet socket as an io.Reader.
type reads struct{ *quiet }

func (r reads) Read(p []byte) (int, error) {
	for {
		if n, err := r.poll(p); n > 0 || err != nil {
			return n, err
		}
		if err := r.wait(); err != nil {
			return 0, err
		}
	}
}

// stop ends a reader and a writer that wait.
func TestQuietStop(t *testing.T) {
	t.Parallel()
	q, peer := pair(t, "unix")
	defer q.close()
	ended := make(chan error, 2)
	go func() { ended <- q.wait() }()
	full := make(chan struct{})
	go func() {
		_, err := q.Write(make([]byte, 1<<20))
		close(full)
		for err == nil { // until the socket holds no more
			_, err = q.Write(make([]byte, 1<<20))
		}
		ended <- err
	}()
	if _, err := io.ReadFull(peer, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	<-full
	q.stop()
	for range 2 {
		if err := <-ended; err == nil {
			// The reader may have seen the shutdown before the end of its watch.
			if _, err := q.poll(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%v after stop", err)
			}
		}
	}
}
