package h2

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"
)

func Example() {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s: %s", r.Method, r.URL.Path, sent)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	pool := NewPool(1, 2*time.Millisecond, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	defer pool.Close()

	notified := make(chan struct{}, 1)
	stream := pool.Prepare(func() {
		select {
		case notified <- struct{}{}:
		default:
		}
	})
	defer stream.Close()
	pool.Do(context.Background(), stream, &Request{Method: http.MethodPost, Scheme: "http", Authority: "a", Path: "/p", Body: []byte("hello")})
	for range notified {
		for p, ok := stream.Next(); ok; p, ok = stream.Next() {
			if fmt.Print(string(p.Body)); p.End || p.Err != nil {
				return
			}
		}
	}
	// Output: POST /p: hello
}
