package engines

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// If a replica fails before the first token, the call is retried at another
// replica, however loaded that is, and the client gets its answer.
func TestFailingReplica(t *testing.T) {
	for name, how := range stack.EngineFailures {
		for _, balance := range []envoy.Balance{envoy.BalancePrefix, envoy.BalanceLeastRequest} {
			t.Run(name+"/"+string(balance), func(t *testing.T) {
				log := &stack.LogFile{Quiet: true}
				healthy, failing := stack.NewFlakyEngine(t, log), stack.NewFlakyEngine(t, log)
				d := stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
					c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, failing.URL}}}
					if balance != envoy.BalancePrefix {
						c.Routing = config.Routing{}
					}
				}})

				converse := func(n int, content string) error {
					more := fmt.Sprintf(`,"stream":%t`, n%2 == 0)
					status, text, err := d.TryChat(fmt.Sprintf("Conversation %d.\n%s", n, content), more)
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

				for n == 0 || healthy.Calls.Load() == 0 || failing.Calls.Load() == 0 {
					several(1)
				}

				failing.SetFailure(how)
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

				if failing.Calls.Load() == 0 {
					t.Error("the failing replica got no call")
				}
			})
		}
	}
}

// Envoy itself retries a call with the longest prompt: it keeps the call's body.
func TestLongPromptIsRetried(t *testing.T) {
	log := &stack.LogFile{Quiet: true}
	healthy, failing := stack.NewFlakyEngine(t, log), stack.NewFlakyEngine(t, log)
	d := stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
		c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, failing.URL}}}
	}})

	failing.SetFailure(func(w http.ResponseWriter, _ int32) {
		http.Error(w, "no room", http.StatusServiceUnavailable)
	})

	long := strings.Repeat("text ", 125_000)
	for n := 0; failing.Calls.Load() == 0; n++ {
		status, text, err := d.TryChat(fmt.Sprintf("Conversation %d.\n%s\nNOTHINK\nSAY on", n, long), "")
		if err != nil || status != http.StatusOK || !strings.Contains(text, `"finish_reason":"stop"`) {
			t.Fatalf("conversation %d: status %d: %.200s, %v", n, status, text, err)
		}
	}

	if n := d.Stat(t, "cluster.engine_vllm.upstream_rq_retry_success"); n == 0 {
		t.Error("Envoy has not retried the call")
	}
	if n := d.Stat(t, "cluster.engine_vllm.retry_or_shadow_abandoned"); n != 0 {
		t.Errorf("Envoy has given %d retries up", n)
	}
}

// A replica that disconnects after the headers is ejected, although each of its
// responses starts with 200.
func TestDisconnectingReplicaIsEjected(t *testing.T) {
	log := &stack.LogFile{Quiet: true}
	healthy, failing := stack.NewFlakyEngine(t, log), stack.NewFlakyEngine(t, log)
	d := stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
		c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, failing.URL}}}
	}})
	failing.SetFailure(stack.EngineFailures["disconnects after the headers"])
	for n, deadline := 0, time.Now().Add(stack.Patience); d.Stat(t, "cluster.engine_vllm.outlier_detection.ejections_enforced_total") == 0; n++ {
		if _, _, err := d.TryChat(fmt.Sprintf("Conversation %d.\nSAY on", n), ""); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replica is not ejected after %d calls", failing.Calls.Load())
		}
	}
}

// A replica whose health check fails gets no calls.
func TestHealthChecks(t *testing.T) {
	log := &stack.LogFile{Quiet: true}
	healthy := stack.NewFlakyEngine(t, log)

	var calls atomic.Int32
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			calls.Add(1)
		}
		http.Error(w, "loading", http.StatusServiceUnavailable)
	}))
	t.Cleanup(unwell.Close)

	d := stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
		c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{healthy.URL, unwell.URL}, HealthPath: "/health"}}
	}})

	for deadline := time.Now().Add(stack.Patience); d.Stat(t, "cluster.engine_vllm.membership_healthy") != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not have one healthy and one unhealthy replica")
		}
	}

	for n := range 16 {
		if resp, text := d.Chat(t, stack.SGLangModel, fmt.Sprintf("Conversation %d.\nSAY on", n), ""); resp.StatusCode != http.StatusOK || resp.Header.Get(header.Upstream) != "" {
			t.Errorf("%s %v: %s", resp.Status, resp.Header, text)
		}
	}

	if calls.Load() > 0 || healthy.Calls.Load() < 16 {
		t.Errorf("%d calls went to the unhealthy replica, %d to the other", calls.Load(), healthy.Calls.Load())
	}
}

// With a single engine, the client gets the engine's error after one retry.
func TestFailingEngineWithoutReplica(t *testing.T) {
	for name, how := range stack.EngineFailures {
		t.Run(name, func(t *testing.T) {
			failing := stack.NewFlakyEngine(t, &stack.LogFile{Quiet: true})
			d := stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
				c.Models, c.Engines = nil, []config.Engine{{Kind: "vllm", URLs: []string{failing.URL}}}
			}})
			for _, more := range []string{"", `,"stream":true`} {
				failing.SetFailure(how)
				resp, text := d.Chat(t, stack.SGLangModel, "SAY on", more)
				if stack.ReadError(t, text); resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s: %s", resp.Status, text)
				}
				if got := failing.Calls.Load(); got != 2 {
					t.Errorf("the engine got %d calls", got)
				}
			}
		})
	}
}
