package h2

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// serve starts a server of HTTP/2, or of HTTP/1 only, and returns a pool for it.
func serve(t *testing.T, http2 bool, h http.HandlerFunc) *Pool {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(http2)
	server.Config.Protocols.SetHTTP1(!http2)
	server.Start()
	t.Cleanup(server.Close)
	pool := NewPool(2, 2*time.Millisecond, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	t.Cleanup(pool.Close)
	return pool
}

// ask sends a request, and returns the body of the answer.
func ask(ctx context.Context, pool *Pool, body string) (string, error) {
	notified := make(chan struct{}, 1)
	st := pool.Prepare(func() {
		select {
		case notified <- struct{}{}:
		default:
		}
	})
	defer st.Close()
	pool.Do(ctx, st, &Request{Method: http.MethodPost, Scheme: "http", Authority: "a", Path: "/", Body: []byte(body)})
	var got []byte
	for {
		select {
		case <-notified:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		for p, ok := st.Next(); ok; p, ok = st.Next() {
			if got = append(got, p.Body...); p.End || p.Err != nil {
				return string(got), p.Err
			}
		}
	}
}

// More requests wait for answers at once than a connection takes: all are sent.
func TestPoolGrows(t *testing.T) {
	t.Parallel()
	const requests = 3 * maxWaiting
	arrived := make(chan struct{}, requests)
	answer := make(chan struct{})
	pool := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-answer
		_, _ = io.Copy(w, r.Body)
	})
	failed := make(chan error, requests)
	body := strings.Repeat("x", 100_000)
	for range requests {
		go func() {
			got, err := ask(t.Context(), pool, body)
			if err == nil && got != body {
				err = errors.New("another body")
			}
			failed <- err
		}()
	}
	for range requests {
		<-arrived
	}
	close(answer)
	for range requests {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if n := len(pool.conns); n < requests/maxWaiting {
		t.Errorf("%d connections", n)
	}
}

// A connection that breaks ends its requests with an error; the next request has
// another connection.
func TestPoolLosesConnection(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	pool := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 {
			_, _ = io.Copy(w, r.Body)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	var conns []net.Conn // the pool dials one at a time
	dial := pool.dial
	pool.dial = func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		if err == nil {
			c = &hidden{c}
			conns = append(conns, c)
		}
		return c, err
	}
	for range 3 {
		failed := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), pool, "")
			failed <- err
		}()
		<-arrived
		for _, c := range conns {
			_ = c.Close()
		}
		if err := <-failed; err == nil {
			t.Error("the end of an answer that has none")
		}
		// A request that follows at once may meet the connection that has ended.
		for {
			got, err := ask(t.Context(), pool, "again")
			if err == nil && got == "again" {
				break
			}
			if err == nil || t.Context().Err() != nil {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
}

// hidden is a connection that is not known as a socket.
type hidden struct{ net.Conn }

// The error for a listener without HTTP/2 says what to change.
func TestPoolOfHTTP1(t *testing.T) {
	t.Parallel()
	pool := serve(t, false, func(http.ResponseWriter, *http.Request) {})
	if _, err := ask(t.Context(), pool, ""); !errors.Is(err, errHTTP1) {
		t.Errorf("%v", err)
	}
}

// A request goes to the fullest connection that has few requests, else to the one with
// the fewest.
func TestPoolChoice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		loads []int // of the connections; -1: takes no request
		want  int   // its position; -1: none
	}{
		{"none", nil, -1},
		{"one that is full", []int{-1}, -1},
		{"the fullest", []int{0, 2, 1}, 1},
		{"the fullest with few", []int{fewStreams, 3, fewStreams - 1, 0}, 2},
		{"the emptiest with many", []int{fewStreams + 2, fewStreams, fewStreams + 1}, 1},
		{"one that takes requests", []int{-1, 5, -1}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &Pool{}
			for _, n := range tt.loads {
				s := newSession(func() {}, func() {})
				s.retired = n < 0
				s.limit = maxStreams
				for id := range max(n, 0) {
					s.streams[uint32(id)] = &Stream{} //nolint:gosec // few
				}
				p.conns = append(p.conns, &conn{session: s})
			}
			best, load, open := p.choose()
			if tt.want < 0 {
				if best != nil || open != 0 {
					t.Errorf("chose one with %d requests of %d", load, open)
				}
				return
			}
			if best != p.conns[tt.want] || load != tt.loads[tt.want] {
				t.Errorf("chose one with %d requests", load)
			}
		})
	}
}
