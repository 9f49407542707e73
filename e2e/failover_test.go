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
	"github.com/envoy-harmony/envoy-harmony/filter"
)

// illnesses are what an engine that is ill answers to its n-th model call, counted
// from 1, before anything of a reply.
var illnesses = map[string]func(w http.ResponseWriter, n int32){
	"breaks off before the headers": func(http.ResponseWriter, int32) { panic(http.ErrAbortHandler) },
	"breaks off after the headers": func(w http.ResponseWriter, _ int32) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	// So vLLM dies.
	"tells an error and then answers 500": func(w http.ResponseWriter, n int32) {
		if n > 1 {
			http.Error(w, `{"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
	},
	"always tells an error": func(w http.ResponseWriter, _ int32) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
	},
}

// patient is an engine that can fall ill.
type patient struct {
	*httptest.Server
	ill   atomic.Pointer[func(http.ResponseWriter, int32)] // nil: it is well
	calls atomic.Int32                                     // since it fell ill, or since the beginning
}

func newPatient(t *testing.T, log *logFile) *patient {
	next := forward(t, startSim(t, log))
	p := &patient{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // it is no model call
			next.ServeHTTP(w, r)
			return
		}
		if names := r.Header.Get(filter.UpstreamHeader); names != "" {
			t.Errorf("the engine is told of replicas: %s", names)
		}
		n, ill := p.calls.Add(1), p.ill.Load()
		if ill == nil {
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		(*ill)(w, n)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *patient) fallIll(how func(http.ResponseWriter, int32)) {
	p.calls.Store(0)
	p.ill.Store(&how)
}

// say posts a chat request of one user message, as chat does, where a test must not
// end.
func (d *dataplane) say(content, more string) (int, string, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, sglangModel, content, more)
	resp, err := d.client.Post(d.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// A replica that fails before it has said anything costs no client its answer: the
// call is made once more, and goes to another replica, however much that one has to
// do.
func TestReplicaIsIll(t *testing.T) {
	for name, how := range illnesses {
		for _, balance := range []envoy.Balance{envoy.BalancePrefix, envoy.BalanceLeastRequest} {
			t.Run(name+"/"+string(balance), func(t *testing.T) {
				log := &logFile{quiet: true}
				well, ill := newPatient(t, log), newPatient(t, log)
				d := start(t, options{quiet: true, config: func(c *filter.Config) {
					c.Models, c.Engines = nil, []filter.Engine{{Kind: "vllm", URLs: []string{well.URL, ill.URL}}}
					if balance != envoy.BalancePrefix {
						c.Routing = filter.Routing{}
					}
				}})
				converse := func(n int, content string) error {
					more := fmt.Sprintf(`,"stream":%t`, n%2 == 0)
					status, text, err := d.say(fmt.Sprintf("Conversation %d.\n%s", n, content), more)
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
				for n == 0 || well.calls.Load() == 0 || ill.calls.Load() == 0 {
					several(1)
				}
				ill.fallIll(how)
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
				if ill.calls.Load() == 0 {
					t.Error("the replica that is ill got no call")
				}
			})
		}
	}
}

// A replica that breaks its calls off after the headers is left out, although each
// has begun as a success.
func TestReplicaThatBreaksOffIsLeftOut(t *testing.T) {
	log := &logFile{quiet: true}
	well, ill := newPatient(t, log), newPatient(t, log)
	d := start(t, options{quiet: true, config: func(c *filter.Config) {
		c.Models, c.Engines = nil, []filter.Engine{{Kind: "vllm", URLs: []string{well.URL, ill.URL}}}
	}})
	ill.fallIll(illnesses["breaks off after the headers"])
	for n, deadline := 0, time.Now().Add(patience); d.stat(t, "cluster.engine_vllm.outlier_detection.ejections_enforced_total") == 0; n++ {
		if _, _, err := d.say(fmt.Sprintf("Conversation %d.\nSAY on", n), ""); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replica is not left out after %d calls", ill.calls.Load())
		}
	}
}

// A replica that says that it is not well gets no calls.
func TestHealthIsAsked(t *testing.T) {
	log := &logFile{quiet: true}
	well := newPatient(t, log)
	var calls atomic.Int32
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			calls.Add(1)
		}
		http.Error(w, "loading", http.StatusServiceUnavailable)
	}))
	t.Cleanup(unwell.Close)
	d := start(t, options{quiet: true, config: func(c *filter.Config) {
		c.Models, c.Engines = nil, []filter.Engine{{Kind: "vllm", URLs: []string{well.URL, unwell.URL}, HealthPath: "/health"}}
	}})
	for deadline := time.Now().Add(patience); d.stat(t, "cluster.engine_vllm.membership_healthy") != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not find one replica well and one not")
		}
	}
	for n := range 16 {
		if resp, text := d.chat(t, sglangModel, fmt.Sprintf("Conversation %d.\nSAY on", n), ""); resp.StatusCode != http.StatusOK || resp.Header.Get(filter.UpstreamHeader) != "" {
			t.Errorf("%s %v: %s", resp.Status, resp.Header, text)
		}
	}
	if calls.Load() > 0 || well.calls.Load() < 16 {
		t.Errorf("%d calls went to the replica that is not well, %d to the other", calls.Load(), well.calls.Load())
	}
}

// Where there is one engine, what it tells is the client's error, after one call more.
func TestOnlyEngineIsIll(t *testing.T) {
	for name, how := range illnesses {
		t.Run(name, func(t *testing.T) {
			ill := newPatient(t, &logFile{quiet: true})
			d := start(t, options{quiet: true, config: func(c *filter.Config) {
				c.Models, c.Engines = nil, []filter.Engine{{Kind: "vllm", URLs: []string{ill.URL}}}
			}})
			for _, more := range []string{"", `,"stream":true`} {
				ill.fallIll(how)
				resp, text := d.chat(t, sglangModel, "SAY on", more)
				if readError(t, text); resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s: %s", resp.Status, text)
				}
				if got := ill.calls.Load(); got != 2 {
					t.Errorf("the engine got %d calls", got)
				}
			}
		})
	}
}
