package upgrade

import (
	"net/http"
	"strings"
	"sync"
)

// heldID begins the ids of requests whose replies the engine holds in their middle.
const heldID = "held-"

// heldBehind is where: some words of the reply are there, and most are not.
const heldBehind = 2000

// gate stands before an engine, and holds the replies to some model calls until it is opened.
type gate struct {
	// held receives for each reply that is held.
	held chan struct{}

	mu     sync.Mutex
	opened chan struct{}
}

func newGate() *gate {
	// With room: most tests do not ask.
	return &gate{held: make(chan struct{}, 100), opened: make(chan struct{})}
}

// open lets everything go on that is held.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
	g.opened = make(chan struct{})
}

// wrap holds replies of a handler.
func (g *gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The engine's id of a request contains the client's.
		if strings.Contains(r.Header.Get("X-Request-Id"), heldID) {
			g.mu.Lock()
			w = &heldWriter{ResponseWriter: w, held: g.held, opened: g.opened, client: r.Context().Done()}
			g.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// heldWriter stops behind the first bytes.
type heldWriter struct {
	http.ResponseWriter
	held    chan<- struct{}
	opened  <-chan struct{}
	client  <-chan struct{}
	written int
}

// Unwrap is for [http.ResponseController].
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes, and waits for the gate at the place where it holds.
func (w *heldWriter) Write(p []byte) (int, error) {
	before := w.written
	w.written += len(p)
	if before >= heldBehind || w.written < heldBehind {
		return w.ResponseWriter.Write(p)
	}

	// An engine without delays may have written the whole reply at once.
	first, err := w.ResponseWriter.Write(p[:heldBehind-before])
	if err != nil {
		return first, err
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	w.held <- struct{}{}

	// A client that leaves is not held: a server that ends waits for its handlers.
	select {
	case <-w.opened:
	case <-w.client:
	}
	rest, err := w.ResponseWriter.Write(p[heldBehind-before:])
	return first + rest, err
}
