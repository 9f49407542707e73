package gateways

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Requests that are canceled before the engine answers do not cut off the streams that
// share connections to the loopback listener with them: Envoy closes a connection on
// which many were.
func TestLoopbackCancels(t *testing.T) {
	const cancels, workers = 1600, 40
	d := stack.Start(t, stack.Options{Quiet: true})

	request := func(ctx context.Context, content string) (*http.Response, error) {
		body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, stack.VLLMModel, content)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("content-type", "application/json")
		return d.Client.Do(req)
	}

	streams := make([]*http.Response, 4)
	for i := range streams {
		resp, err := request(t.Context(), "NOTHINK\nWORDS 100000\nSIM delay=1ms")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		streams[i] = resp
	}

	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range cancels / workers {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				if resp, err := request(ctx, "SIM status=503 first=1m"); err == nil {
					t.Errorf("an answer: %d", resp.StatusCode)
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}

	all.Wait()
	for i, resp := range streams { // what has come since, and more
		if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
}
