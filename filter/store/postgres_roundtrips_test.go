package store_test

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// turns is a proxy in front of a server that counts round trips: how often a
// client sends something after the server has.
type turns struct {
	net.Listener
	server string
	n      atomic.Int64
	copies sync.WaitGroup
}

func newTurns(t *testing.T, server string) *turns {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &turns{Listener: listener, server: server}
	p.copies.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", p.server)
			if err != nil {
				client.Close()
				continue
			}
			var answered atomic.Bool
			answered.Store(true)
			p.copies.Go(func() {
				defer server.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := client.Read(buffer)
					if n > 0 && answered.Swap(false) {
						p.n.Add(1)
					}
					if _, write := server.Write(buffer[:n]); err != nil || write != nil {
						return
					}
				}
			})
			p.copies.Go(func() {
				defer client.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := server.Read(buffer)
					answered.Store(true)
					if _, write := client.Write(buffer[:n]); err != nil || write != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		p.copies.Wait()
	})
	return p
}

// TestPostgresRoundTrips counts the round trips of accesses once their statements
// are prepared.
func TestPostgresRoundTrips(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(postgresSchema(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := newTurns(t, u.Host)
	query := u.Query()
	query.Set("pool_size", "1")
	u.Host, u.RawQuery = proxy.Addr().String(), query.Encode()
	s := openURL(t, u.String(), testOptions)
	ctx := t.Context()
	if err := s.PutConversation(ctx, "a", &store.Conversation{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	roomy := store.WithRoom(ctx, func(int) error { return nil })
	large := response("large", "")
	large.Object = []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	put(t, s, large)

	number := ""
	for _, c := range []struct {
		name   string
		most   int64
		access func() error
	}{
		{"the date of a conversation that begins", 1, func() error { _, err := s.PutTextIfAbsent(ctx, "a", "date"+number, "today"); return err }},
		{"the date of a conversation that goes on", 1, func() error { _, err := s.PutTextIfAbsent(ctx, "a", "date"+number, "today"); return err }},
		{"a new response", 1, func() error { return s.Put(ctx, "a", response("first"+number, "")) }},
		{"a response that continues one", 1, func() error { return s.Put(ctx, "a", response("next"+number, "first"+number)) }},
		{"the head of a chain", 1, func() error { _, err := s.Head(ctx, "a", "next"+number); return err }},
		{"the end of a background response", 1, func() error {
			r := response("next"+number, "first"+number)
			r.Version = 2
			return s.Put(ctx, "a", r)
		}},
		{"a small response, with a room", 1, func() error { _, err := s.Get(roomy, "a", "next"+number); return err }},
		{"a small chain, with a room", 1, func() error { _, err := s.Chain(roomy, "a", "next"+number); return err }},
		{"a large response, with a room", 2, func() error { _, err := s.Get(roomy, "a", "large"); return err }},
		{"a deleted response", 1, func() error { return s.Delete(ctx, "a", "next"+number) }},
		{"items of a conversation", 1, func() error {
			return s.AddItems(ctx, "a", "c", "", []store.Item{{ID: "i" + number, JSON: []byte(`{}`)}})
		}},
	} {
		for _, number = range []string{"1", "2"} {
			before := proxy.n.Load()
			if err := c.access(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if n := proxy.n.Load() - before; number == "2" && n > c.most {
				t.Errorf("%s takes %d round trips, want %d", c.name, n, c.most)
			}
		}
	}
}
