package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// loadClients is how many clients ask at one time.
const loadClients = 6

// chainLength is how many turns a client continues before it begins again: longer chains make
// each turn slower, and test the same.
const chainLength = 8

// load is clients that ask for one stream after the other, at each API in turn.
type load struct {
	f    *fleet
	stop context.CancelFunc
	all  sync.WaitGroup
	done atomic.Int64

	mu     sync.Mutex
	failed []string
}

// startLoad starts the clients.
func (f *fleet) startLoad() *load {
	ctx, cancel := context.WithCancel(f.t.Context())
	l := &load{f: f, stop: cancel}
	for range loadClients {
		l.all.Go(func() { l.client(ctx) })
	}
	return l
}

// client asks until the load is stopped. With a shared store its responses are a chain, whose
// turns any filter of any version makes.
func (l *load) client(ctx context.Context) {
	previous, turns := "", 0
	for ctx.Err() == nil {
		for _, a := range stack.FaultAPIs {
			chained := a.Name == "responses" && l.f.shared
			body := a.Body(loadModel, "THINK Hm.\nWORDS 10 10", true)
			if chained && previous != "" && turns < chainLength {
				body = strings.Replace(body, "{", `{"previous_response_id":"`+previous+`",`, 1)
				turns++
			} else if chained {
				turns = 0
			}

			// With the test's context: the stop of the load breaks no stream that runs.
			text, problem := l.stream(l.f.t.Context(), a, body)
			if problem != "" {
				l.mu.Lock()
				l.failed = append(l.failed, a.Name+": "+problem)
				l.mu.Unlock()
				turns = chainLength
			} else if chained {
				previous = responseID(text)
			}
			l.done.Add(1)
		}
	}
}

// stream asks for one stream, and reads it to its end. problem is "" if it is whole.
func (l *load) stream(ctx context.Context, a stack.FaultAPI, body string) (text, problem string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.f.URL+a.Path, strings.NewReader(body))
	if err != nil {
		return "", err.Error()
	}
	req.Header.Set("Content-Type", "application/json")

	resp, err := l.f.Client.Do(req)
	if err != nil {
		return "", err.Error()
	}
	defer resp.Body.Close()

	text, message, err := a.Read(resp.Body)
	if err != nil || message != "" || resp.StatusCode != http.StatusOK {
		return "", fmt.Sprintf("status %d, %v, error %q: %.3000s", resp.StatusCode, err, message, text)
	}
	return text, ""
}

// responseID returns the id of the response of a stream.
func responseID(stream string) string {
	for line := range strings.Lines(stream) {
		if id := gjson.Get(strings.TrimPrefix(line, "data: "), "response.id").Str; id != "" {
			return id
		}
	}
	return ""
}

// more waits until the load has made some more requests.
func (l *load) more() {
	l.f.t.Helper()
	// Twice as many as run at a time, so that at least half of them have begun after the call.
	until := l.done.Load() + 2*loadClients
	for deadline := time.Now().Add(stack.Patience); l.done.Load() < until; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.f.t.Fatal("no requests end")
		}
	}
}

// end stops the load. No request of it may have failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.all.Wait()
	t.Logf("%d requests of the load, %d failed", l.done.Load(), len(l.failed))
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, the first with: %s", len(l.failed), l.done.Load(), l.failed[0])
	}
}
