package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkLoopback compares model calls through the loopback listener with
// requests that Envoy forwards itself, alternately in one run: the duration of a
// short request and the tokens per second.
func BenchmarkLoopback(b *testing.B) {
	ways := map[string]*dataplane{"loopback": start(b, options{quiet: true}), "direct": start(b, options{quiet: true, direct: true})}
	ask := func(d *dataplane, content string) {
		body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, vllmModel, content)
		resp, err := d.client.Post(d.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Errorf("status %d: %v", resp.StatusCode, err)
		}
	}
	for _, c := range []struct {
		name     string
		parallel int
		words    int
	}{{"short request", 1, 1}, {"64 streams of 500 tokens", 64, 500}} {
		b.Run(c.name, func(b *testing.B) {
			took := map[string]time.Duration{}
			for b.Loop() {
				for name, d := range ways { // in random order
					begun := time.Now()
					var all sync.WaitGroup
					for range c.parallel {
						all.Go(func() { ask(d, fmt.Sprintf("NOTHINK\nWORDS %d", c.words)) })
					}
					all.Wait()
					took[name] += time.Since(begun)
				}
			}
			for name, t := range took {
				b.ReportMetric(t.Seconds()/float64(b.N)*1000, name+"-ms")
			}
			b.ReportMetric(took["loopback"].Seconds()/took["direct"].Seconds(), "loopback/direct")
		})
	}
}
