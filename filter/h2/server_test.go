package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2/hpack"
)

// answering is a Server at an address.
type answering struct {
	*Server
	network  string
	l        net.Listener
	secure   *tls.Config   // nil: without TLS
	dialed   chan net.Conn // the client's end of the last connection
	accepted chan error    // the end of accepting
}

// newAnswering starts a server over tcp, unix or tls. Sockets are quiet, TLS is not.
func newAnswering(t *testing.T, transport string) *answering {
	t.Helper()
	s := &answering{network: transport, dialed: make(chan net.Conn, 1), accepted: make(chan error, 1)}
	s.Server = NewServer(keyField, (&keys{}).next)
	address := "127.0.0.1:0"
	switch transport {
	case "unix":
		address = filepath.Join(t.TempDir(), "s")
	case "tls":
		s.network = "tcp"
		certified := httptest.NewTLSServer(nil)
		certified.Close()
		s.secure = &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	}
	var err error
	if s.l, err = (&net.ListenConfig{}).Listen(t.Context(), s.network, address); err != nil {
		t.Fatal(err)
	}
	go func() { s.accepted <- s.accept() }()
	t.Cleanup(func() {
		_ = s.l.Close()
		if err := <-s.accepted; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

// keys makes keys.
type keys struct {
	mu sync.Mutex
	n  int
}

func (k *keys) next() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	return fmt.Sprint("k", k.n)
}

// accept serves connections until the listener is closed.
func (s *answering) accept() error {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return err
		}
		if s.secure != nil {
			c = tls.Server(c, s.secure)
		}
		first, marked, err := Peek(c, settingWindow)
		if err != nil { // a client may have dialed more often than it needs
			_ = c.Close()
			continue
		}
		if !marked {
			return fmt.Errorf("no setting in %q", first)
		}
		if err := s.Serve(c, first); err != nil {
			return err
		}
	}
}

func (s *answering) dial(ctx context.Context) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, s.network, s.l.Addr().String())
	select {
	case s.dialed <- c:
	default:
	}
	return c, err
}

// client returns the standard library's client, with windows of 64 KiB.
func (s *answering) client(t *testing.T) *http.Client {
	t.Helper()
	const window = 64 << 10
	tr := &http.Transport{
		Protocols:       new(http.Protocols),
		HTTP2:           &http.HTTP2Config{MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window},
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	tr.Protocols.SetUnencryptedHTTP2(s.secure == nil)
	tr.Protocols.SetHTTP2(s.secure != nil)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// ask sends a request that names a reply.
func (s *answering) ask(ctx context.Context, c *http.Client, key string) (*http.Response, error) {
	scheme := "http"
	if s.secure != nil {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://a/", http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set(keyField, key)
	return c.Do(r)
}

// get returns an answer as text.
func (s *answering) get(t *testing.T, c *http.Client, key string) string {
	t.Helper()
	resp, err := s.ask(t.Context(), c, key)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s %s %s %v", resp.StatusCode, resp.Header.Get("a"), body, resp.Trailer.Get("x"), err)
}

// bell is a bell that can be waited for.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// overTransports runs a test for each way to a server.
func overTransports(t *testing.T, test func(t *testing.T, s *answering)) {
	for _, transport := range []string{"tcp", "unix", "tls"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			test(t, newAnswering(t, transport))
		})
	}
}

// A client gets replies that are written before and after its request.
func TestServer(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		c := s.client(t)
		long := strings.Repeat("long", 100_000)
		for _, body := range []string{"", "hello", long} {
			r := s.Prepare(func() {})
			r.Begin([]Field{{"a", "b"}})
			r.Write([]byte(body))
			r.End(Field{"x", "1"})
			if got := s.get(t, c, r.Key()); got != "200 b "+body+" 1 <nil>" {
				t.Errorf("before the request: %.100q", got)
			}
			if got := s.get(t, c, r.Key()); got != "503    <nil>" {
				t.Errorf("the key again: %.100q", got)
			}
			r.Close()

			r = s.Prepare(func() {})
			r.Begin([]Field{{"a", "b"}})
			resp, err := s.ask(t.Context(), c, r.Key())
			if err != nil {
				t.Fatal(err)
			}
			r.Write([]byte(body))
			r.End(Field{"x", "2"})
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != body || resp.Trailer.Get("x") != "2" {
				t.Errorf("after the request: %.100q, %v, %v", got, resp.Trailer, err)
			}
			_ = resp.Body.Close()
			r.Close()
		}
	})
}

// fill writes to a reply until it is behind, and returns how many bytes that takes.
func fill(t *testing.T, r *Reply) int {
	t.Helper()
	n := 0
	for p := make([]byte, 1000); !r.Behind(); n += len(p) {
		if n > 1<<20 {
			t.Fatal("it is not behind")
		}
		r.Write(p)
	}
	return n
}

// A reply whose client does not read is behind until it reads.
func TestServerHoldsBack(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		bell := newBell()
		r := s.Prepare(bell.ring)
		defer r.Close()
		r.Begin(nil)
		resp, err := s.ask(t.Context(), s.client(t), r.Key())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for range 3 {
			n := fill(t, r)
			select {
			case <-bell:
				t.Fatal("the bell rings, and the client has not read")
			default:
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if <-bell; r.Behind() {
				t.Error("the bell rings, and the reply is behind")
			}
		}
		r.End(Field{"x", "1"})
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 || resp.Trailer.Get("x") != "1" {
			t.Errorf("%d bytes, %v, %v at the end", len(rest), resp.Trailer, err)
		}
	})
}

// A reply whose client leaves is not behind any more.
func TestServerLosesClient(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		for _, abrupt := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			bell := newBell()
			r := s.Prepare(bell.ring)
			defer r.Close()
			r.Begin(nil)
			resp, err := s.ask(ctx, s.client(t), r.Key())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			fill(t, r)
			c := <-s.dialed
			if abrupt {
				_ = c.Close()
			} else {
				cancel()
			}
			if <-bell; r.Behind() {
				t.Error("it is behind")
			}
			_ = c.Close()
		}
		s.running.Wait()
		if len(s.conns) > 0 {
			t.Errorf("%d connections are kept", len(s.conns))
		}
	})
}

// writes writes the body of a reply at the pace of its client.
func writes(r *Reply, bell bell, body []byte) {
	for n := 1; len(body) > 0; n = n*7%4001 + 1 {
		n = min(n, len(body))
		r.Write(body[:n])
		if body = body[n:]; r.Behind() {
			<-bell
		}
	}
}

// What happens to a reply of TestServerSharesWindow.
const (
	leaves   = iota // the client does
	breaks          // the server breaks it off
	complete        // and all others
)

// Many replies share the window of a connection. Some are broken off, and some clients
// leave.
func TestServerSharesWindow(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		c := s.client(t)
		body := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 60 {
			kind := min(i%5, complete)
			bell, read := newBell(), make(chan struct{})
			r := s.Prepare(bell.ring)
			all.Go(func() {
				defer r.Close()
				r.Begin(nil)
				if kind == breaks {
					writes(r, bell, body[:len(body)/2])
					return
				}
				writes(r, bell, body)
				r.End(Field{"x", "1"})
				<-read
			})
			all.Go(func() {
				defer close(read)
				if err := s.reads(t, c, r.Key(), kind, body); err != nil {
					t.Errorf("reply %d: %v", i, err)
				}
			})
		}
	})
}

// reads reads a reply, and returns an error if it is another one than is expected.
func (s *answering) reads(t *testing.T, c *http.Client, key string, kind int, body []byte) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := s.ask(ctx, c, key)
	if kind == breaks && (err != nil || resp.StatusCode == http.StatusServiceUnavailable) {
		return nil // it was broken off before the request came
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind == leaves {
		_, err := io.ReadFull(resp.Body, make([]byte, 1000))
		return err
	}
	got, err := io.ReadAll(resp.Body)
	switch {
	case !bytes.HasPrefix(body, got):
		return errors.New("other bytes")
	case kind == breaks && err != nil, kind == complete && err == nil && len(got) == len(body):
		return nil
	}
	return fmt.Errorf("%d bytes, %w", len(got), err)
}

// Close ends connections with and without requests, and replies that are behind. After
// it, none is served.
func TestServerClose(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		idle := s.client(t)
		if got := s.get(t, idle, "k"); !strings.HasPrefix(got, "503") {
			t.Error(got)
		}
		bell := newBell()
		r := s.Prepare(bell.ring)
		defer r.Close()
		r.Begin(nil)
		resp, err := s.ask(t.Context(), s.client(t), r.Key())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		fill(t, r)
		s.Close()
		if <-bell; r.Behind() || len(s.conns) > 0 {
			t.Errorf("behind %t, %d connections", r.Behind(), len(s.conns))
		}
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Error("the end of a reply that has none")
		}
		s.Close()
		ours, theirs := net.Pipe()
		if err := s.Serve(ours, nil); !errors.Is(err, ErrServerClosed) {
			t.Errorf("%v after Close", err)
		}
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is not closed: %v", err)
		}
	})
}

// Close ends replies that are being written.
func TestServerCloseReleases(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		c := s.client(t)
		var all sync.WaitGroup
		for range 20 {
			bell := newBell()
			r := s.Prepare(bell.ring)
			r.Begin(nil)
			resp, err := s.ask(t.Context(), c, r.Key())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			all.Go(func() {
				defer r.Close()
				writes(r, bell, make([]byte, 1<<20))
			})
		}
		s.Close()
		all.Wait()
	})
}

// Close ends a connection whose peer opens its windows, and does not read.
func TestServerCloseWrites(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, s *answering) {
		r := s.Prepare(func() {})
		defer r.Close()
		r.Begin(nil)
		const size = 16 << 20 // more than a socket holds
		r.Write(make([]byte, size))
		a := &asker{peer: &peer{t: t}, streams: map[uint32]*taken{}}
		a.encoder = hpack.NewEncoder(&a.fields)
		a.in = []byte(preface)
		a.frame(frameSettings, 0, 0, "\x00\x04"+word(maxWindow)).frame(frameWindow, 0, 0, word(size))
		a.request(1, r.Key())
		c, err := s.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.secure != nil {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		defer c.Close()
		if _, err := c.Write(a.in); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if n, err := io.Copy(io.Discard, c); n >= size {
			t.Errorf("%d bytes, %v after Close", n, err)
		}
	})
}

// A connection that is closed is not served, and Close does not wait for it.
func TestServeFails(t *testing.T) {
	t.Parallel()
	s := newAnswering(t, "tcp")
	c, err := s.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if err := s.Serve(c, nil); !errors.Is(err, net.ErrClosed) || len(s.conns) > 0 {
		t.Errorf("%v, %d connections", err, len(s.conns))
	}
}

const markedBy = 0xf7e1

// mark is a setting.
func mark(name uint16, value uint32) string { return string(appendSetting(nil, name, value)) }

// begins is the beginning of a connection, with a frame.
func begins(kind byte, payload string) string {
	return preface + string(appendHead(nil, len(payload), kind, 0, 0)) + payload
}

// Peek reads the settings of a peer, and nothing behind them.
func TestPeek(t *testing.T) {
	t.Parallel()
	const head = len(preface) + frameHead
	for _, tt := range []struct {
		name, in string
		marked   bool
		first    int // how much of in is read
		err      error
	}{
		{"marked", begins(frameSettings, mark(markedBy, 1)), true, head + 6, nil},
		{"any value", begins(frameSettings, mark(markedBy, 0)), true, head + 6, nil},
		{"marked last", begins(frameSettings, mark(3, 100)+mark(4, 5)+mark(markedBy, 1)) + "more", true, head + 18, nil},
		{"not marked", begins(frameSettings, mark(3, markedBy)+mark(markedBy&0xff, markedBy<<16)) + "more", false, head + 12, nil},
		{"no settings", begins(frameSettings, "") + "more", false, head, nil},
		{"half a setting", begins(frameSettings, "\xf7\xe1\x00\x00\x00") + "more", false, head + 5, nil},
		{"the longest frame", begins(frameSettings, strings.Repeat(mark(3, 1), maxFrame/6-1)+mark(markedBy, 1)+"\x00\x00\x00\x00"), true, head + maxFrame, nil},
		{"a longer frame", begins(frameSettings, strings.Repeat(mark(markedBy, 1), maxFrame/6+1)), false, head, nil},
		{"another frame", begins(framePing, mark(markedBy, 1)), false, head, nil},
		{"another preface", strings.Replace(begins(frameSettings, mark(markedBy, 1)), "SM", "XX", 1), false, head, nil},
		{"HTTP/1", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", false, head, nil},
		{"garbage", strings.Repeat("\xff", 100), false, head, nil},
		{"nothing", "", false, 0, io.EOF},
		{"half a preface", preface[:10], false, 0, io.ErrUnexpectedEOF},
		{"half a frame", begins(frameSettings, mark(markedBy, 1))[:head+3], false, 0, io.ErrUnexpectedEOF},
		{"no frame", begins(frameSettings, mark(markedBy, 1))[:head], false, 0, io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1 << 20, 1} {
				c, theirs := net.Pipe()
				peeked := make(chan struct{})
				go func() {
					for p := []byte(tt.in); len(p) > 0; p = p[min(size, len(p)):] {
						_, _ = theirs.Write(p[:min(size, len(p))])
					}
					if tt.err == nil {
						<-peeked
					}
					_ = theirs.Close()
				}()
				first, marked, err := Peek(c, markedBy)
				close(peeked)
				if string(first) != tt.in[:tt.first] || marked != tt.marked || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
					t.Errorf("%.100q, marked %t, %v", first, marked, err)
				}
				if rest, err := io.ReadAll(c); tt.err == nil && (err != nil || string(first)+string(rest) != tt.in) {
					t.Errorf("then %.100q, %v", rest, err)
				}
			}
		})
	}
}

// Peek waits a limited time, and leaves the connection without a limit.
func TestPeekTimeout(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, len(preface) + frameHead} {
		synctest.Test(t, func(t *testing.T) {
			c, theirs := net.Pipe()
			defer theirs.Close()
			start, in := time.Now(), begins(frameSettings, mark(markedBy, 1))
			go func() { _, _ = io.WriteString(theirs, in[:n]) }()
			if _, _, err := Peek(c, markedBy); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != peekTimeout {
				t.Errorf("%d bytes: %v after %v", n, err, time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c, theirs := net.Pipe()
		go func() {
			_, _ = io.WriteString(theirs, begins(frameSettings, ""))
			time.Sleep(2 * peekTimeout)
			_, _ = io.WriteString(theirs, "x")
			_ = theirs.Close()
		}()
		if _, _, err := Peek(c, markedBy); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "x" {
			t.Errorf("%q, %v after Peek", got, err)
		}
	})
}
