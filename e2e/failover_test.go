package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// engineFailures are the responses of a failing engine to its n-th model call,
// counted from 1. They fail before the first token.
var engineFailures = map[string]func(w http.ResponseWriter, n int32){
	"disconnects before the headers": func(http.ResponseWriter, int32) { panic(http.ErrAbortHandler) },
	"disconnects after the headers": func(w http.ResponseWriter, _ int32) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	// vLLM fails like this.
	"an error event, then 500": func(w http.ResponseWriter, n int32) {
		if n > 1 {
			http.Error(w, `{"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
	},
	"always an error event": func(w http.ResponseWriter, _ int32) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
	},
}

// flakyEngine is an engine that can be made to fail.
type flakyEngine struct {
	*httptest.Server
	failure atomic.Pointer[func(http.ResponseWriter, int32)] // nil: the engine works
	calls   atomic.Int32                                     // since setFailure, or since the start
	named   atomic.Bool                                      // the gateway cannot remove the filter's list of replicas
}

func newFlakyEngine(t *testing.T, log *logFile) *flakyEngine {
	next := forward(t, startSim(t, log))
	p := &flakyEngine{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // not a model call
			next.ServeHTTP(w, r)
			return
		}
		if names := r.Header.Get(header.Upstream); names != "" && !p.named.Load() {
			t.Errorf("the engine gets a header of the filter: %s", names)
		}
		n, failure := p.calls.Add(1), p.failure.Load()
		if failure == nil {
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		(*failure)(w, n)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *flakyEngine) setFailure(how func(http.ResponseWriter, int32)) {
	p.calls.Store(0)
	p.failure.Store(&how)
}

// tryChat posts a chat request like chat, but returns errors.
func (d *dataplane) tryChat(content, more string) (int, string, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, sglangModel, content, more)
	resp, err := d.client.Post(d.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// If a replica fails before the first token, the call is retried at another
// replica, however loaded that is, and the client gets its answer.
func TestFailingReplica(t *testing.T) {
	for name, how := range engineFailures {
		for _, balance := range []envoy.Balance{envoy.BalancePrefix, envoy.BalanceLeastRequest} {
			t.Run(name+"/"+string(balance), func(t *testing.T) {
				log := &logFile{quiet: true}
				healthy, failing := newFlakyEngine(t, log), newFlakyEngine(t, log)
				d := start(t, options{quiet: true, config: func(c *config.Config) {
					c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, failing.URL}}}
					if balance != envoy.BalancePrefix {
						c.Routing = config.Routing{}
					}
				}})
				converse := func(n int, content string) error {
					more := fmt.Sprintf(`,"stream":%t`, n%2 == 0)
					status, text, err := d.tryChat(fmt.Sprintf("Conversation %d.\n%s", n, content), more)
					if err == nil && (status != http.StatusOK || !strings.Contains(text, `"finish_reason":"stop"`)) {
						err = fmt.Errorf("conversation %d: status %d: %s", n, status, text)
					}
					return err
				}
				n := 0
				several := func(count int) {
					t.Helper()
					for range count {
						n++
						if err := converse(n, "SAY on"); err != nil {
							t.Error(err)
						}
					}
				}
				for n == 0 || healthy.calls.Load() == 0 || failing.calls.Load() == 0 {
					several(1)
				}
				failing.setFailure(how)
				var busy sync.WaitGroup
				for i := range 12 {
					busy.Go(func() {
						if err := converse(-2*i, "NOTHINK\nWORDS 50 1\nSIM delay=20ms"); err != nil {
							t.Error(err)
						}
					})
				}
				several(20)
				busy.Wait()
				several(20)
				if failing.calls.Load() == 0 {
					t.Error("the failing replica got no call")
				}
			})
		}
	}
}

// Envoy itself retries a call with the longest prompt: it keeps the call's body.
func TestLongPromptIsRetried(t *testing.T) {
	log := &logFile{quiet: true}
	healthy, failing := newFlakyEngine(t, log), newFlakyEngine(t, log)
	d := start(t, options{quiet: true, config: func(c *config.Config) {
		c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, failing.URL}}}
	}})
	failing.setFailure(func(w http.ResponseWriter, _ int32) {
		http.Error(w, "no room", http.StatusServiceUnavailable)
	})
	long := strings.Repeat("text ", 125_000)
	for n := 0; failing.calls.Load() == 0; n++ {
		status, text, err := d.tryChat(fmt.Sprintf("Conversation %d.\n%s\nNOTHINK\nSAY on", n, long), "")
		if err != nil || status != http.StatusOK || !strings.Contains(text, `"finish_reason":"stop"`) {
			t.Fatalf("conversation %d: status %d: %.200s, %v", n, status, text, err)
		}
	}
	if n := d.stat(t, "cluster.engine_vllm.upstream_rq_retry_success"); n == 0 {
		t.Error("Envoy has not retried the call")
	}
	if n := d.stat(t, "cluster.engine_vllm.retry_or_shadow_abandoned"); n != 0 {
		t.Errorf("Envoy has given %d retries up", n)
	}
}

// A replica that disconnects after the headers is ejected, although each of its
// responses starts with 200.
func TestDisconnectingReplicaIsEjected(t *testing.T) {
	log := &logFile{quiet: true}
	healthy, failing := newFlakyEngine(t, log), newFlakyEngine(t, log)
	d := start(t, options{quiet: true, config: func(c *config.Config) {
		c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, failing.URL}}}
	}})
	failing.setFailure(engineFailures["disconnects after the headers"])
	for n, deadline := 0, time.Now().Add(patience); d.stat(t, "cluster.engine_vllm.outlier_detection.ejections_enforced_total") == 0; n++ {
		if _, _, err := d.tryChat(fmt.Sprintf("Conversation %d.\nSAY on", n), ""); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replica is not ejected after %d calls", failing.calls.Load())
		}
	}
}

// A replica whose health check fails gets no calls.
func TestHealthChecks(t *testing.T) {
	log := &logFile{quiet: true}
	healthy := newFlakyEngine(t, log)
	var calls atomic.Int32
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			calls.Add(1)
		}
		http.Error(w, "loading", http.StatusServiceUnavailable)
	}))
	t.Cleanup(unwell.Close)
	d := start(t, options{quiet: true, config: func(c *config.Config) {
		c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, unwell.URL}, HealthPath: "/health"}}
	}})
	for deadline := time.Now().Add(patience); d.stat(t, "cluster.engine_vllm.membership_healthy") != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not have one healthy and one unhealthy replica")
		}
	}
	for n := range 16 {
		if resp, text := d.chat(t, sglangModel, fmt.Sprintf("Conversation %d.\nSAY on", n), ""); resp.StatusCode != http.StatusOK || resp.Header.Get(header.Upstream) != "" {
			t.Errorf("%s %v: %s", resp.Status, resp.Header, text)
		}
	}
	if calls.Load() > 0 || healthy.calls.Load() < 16 {
		t.Errorf("%d calls went to the unhealthy replica, %d to the other", calls.Load(), healthy.calls.Load())
	}
}

// With a single engine, the client gets the engine's error after one retry.
func TestFailingEngineWithoutReplica(t *testing.T) {
	for name, how := range engineFailures {
		t.Run(name, func(t *testing.T) {
			failing := newFlakyEngine(t, &logFile{quiet: true})
			d := start(t, options{quiet: true, config: func(c *config.Config) {
				c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{failing.URL}}}
			}})
			for _, more := range []string{"", `,"stream":true`} {
				failing.setFailure(how)
				resp, text := d.chat(t, sglangModel, "SAY on", more)
				if readError(t, text); resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s: %s", resp.Status, text)
				}
				if got := failing.calls.Load(); got != 2 {
					t.Errorf("the engine got %d calls", got)
				}
			}
		})
	}
}
