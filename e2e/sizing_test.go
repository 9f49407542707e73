package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkSizing measures what docs/sizing.md says: CPU time of filter and of Envoy
// for a token of streams that get one every 20 ms, memory for a stream that is open,
// and CPU time for a short request.
func BenchmarkSizing(b *testing.B) {
	log := logOf(b)
	sim, _ := startSimAs(b, log, "--delay", "20ms")
	var s sizing
	processes := started(b, func() {
		p := serveProgram(b, log, "--engine", "vllm="+sim, "--set", "loopback=unix://"+filepath.Join(socketDir(b), "loopback"), "--set", "log.level=info")
		s.d = p.envoy(b, p.bootstrap(b))
	})
	s.filter, s.envoy = processes[0], processes[1]
	s.streams(b, 10, 5)                     // before anything is measured
	b.Run("open=1000", func(b *testing.B) { // first, because freed memory is used again
		for b.Loop() {
			s.open(b, 1000)
		}
	})
	for _, n := range []int{1, 50, 200, 400} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			const words = 500 // ten seconds
			for b.Loop() {
				s.measure(b, float64(n*words), "token", func() { s.streams(b, n, words) })
			}
		})
	}
	b.Run("requests", func(b *testing.B) {
		const rounds, clients = 50, 40
		for b.Loop() {
			s.measure(b, rounds*clients, "request", func() {
				for range rounds {
					s.streams(b, clients, 0)
				}
			})
		}
	})
}

// sizing is a data plane whose processes are measured.
type sizing struct {
	d             *dataplane
	filter, envoy osProcess
}

// measure reports the CPU time that work takes for each of n units.
func (s *sizing) measure(b *testing.B, n float64, unit string, work func()) {
	b.Helper()
	filter, envoy, begin := cpuOf(b, s.filter), cpuOf(b, s.envoy), time.Now()
	work()
	seconds := time.Since(begin).Seconds()
	filter, envoy = cpuOf(b, s.filter)-filter, cpuOf(b, s.envoy)-envoy
	b.ReportMetric(filter.Seconds()/n*1e6, "filter-µs/"+unit)
	b.ReportMetric(envoy.Seconds()/n*1e6, "envoy-µs/"+unit)
	b.ReportMetric(filter.Seconds()/seconds, "filter-cores")
	b.ReportMetric(envoy.Seconds()/seconds, "envoy-cores")
}

// streams asks n times at once for so many words, and reads the answers to their end.
func (s *sizing) streams(b *testing.B, n, words int) {
	b.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			resp, err := s.ask(b.Context(), words)
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(text), "[DONE]\n\n") {
				b.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// open reports the memory of n streams that wait for their second token.
func (s *sizing) open(b *testing.B, n int) {
	b.Helper()
	filter, envoy := s.filter.memory(b), s.envoy.memory(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			resp, err := s.ask(ctx, 5000)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.ReadFull(resp.Body, make([]byte, 1))
			<-ctx.Done()
			_ = resp.Body.Close()
		})
	}
	time.Sleep(10 * time.Second)
	b.ReportMetric(float64(s.filter.memory(b)-filter)/float64(n)/1024, "filter-KiB/stream")
	b.ReportMetric(float64(s.envoy.memory(b)-envoy)/float64(n)/1024, "envoy-KiB/stream")
	cancel()
	all.Wait()
}

func (s *sizing) ask(ctx context.Context, words int) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":"gpt-oss-120b","stream":true,"messages":[{"role":"user","content":"SAY %s."}]}`, strings.Repeat(" word", words))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.d.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.d.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, nil
}
