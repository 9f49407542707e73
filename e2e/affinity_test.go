package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// replicas are engines that serve one model: simulated engines behind servers that
// count model calls.
type replicas struct {
	servers []*httptest.Server
	mu      sync.Mutex
	failing int // the replica that answers 503 to all requests, -1 if none does
	served  []int
	prefix  []string // of each call, in order
	session []string
}

// newReplicas starts n replicas.
func newReplicas(t testing.TB, n int, log *logFile) *replicas {
	r := &replicas{served: make([]int, n), failing: -1}
	for i := range n {
		next := forward(t, startSim(t, log))
		r.servers = append(r.servers, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			r.mu.Lock()
			dead := r.failing == i
			r.served[i]++
			r.prefix = append(r.prefix, q.Header.Get("x-harmony-prefix"))
			r.session = append(r.session, q.Header.Get("x-harmony-session"))
			r.mu.Unlock()
			if dead {
				http.Error(w, "dead", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, q)
		})))
		t.Cleanup(r.servers[i].Close)
	}
	return r
}

// serve configures the replicas as the only engine.
func (r *replicas) serve(c *config.Config) {
	c.Models = nil
	c.Engines = []config.Engine{{Kind: "sglang"}}
	for _, s := range r.servers {
		c.Engines[0].URLs = append(c.Engines[0].URLs, s.URL)
	}
}

// takeCounts returns and resets the number of calls of each replica, and returns
// the keys of the last call.
func (r *replicas) takeCounts() (served []int, prefix, session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	served = slices.Clone(r.served)
	clear(r.served)
	if n := len(r.prefix); n > 0 {
		prefix, session = r.prefix[n-1], r.session[n-1]
		r.prefix, r.session = nil, nil
	}
	return served, prefix, session
}

// onlyServed returns the replica that has served n calls while no other has served
// any.
func onlyServed(served []int, n int) (int, bool) {
	i := slices.Index(served, n)
	rest := slices.Clone(served)
	if i >= 0 {
		rest[i] = 0
	}
	return i, i >= 0 && !slices.ContainsFunc(rest, func(n int) bool { return n != 0 })
}

// conversation is a chat that grows by a turn with each message.
type conversation struct{ messages []map[string]string }

func newTalk(instructions string) *conversation {
	return &conversation{[]map[string]string{{"role": "system", "content": instructions}}}
}

// ask sends the next message and returns the status and the reply.
func (k *conversation) ask(d *dataplane, content, more string, headers ...string) (int, gjson.Result, error) {
	k.messages = append(k.messages, map[string]string{"role": "user", "content": content})
	messages, err := json.Marshal(k.messages)
	if err != nil {
		return 0, gjson.Result{}, err
	}
	body := fmt.Sprintf(`{"model":%q,"messages":%s%s}`, sglangModel, messages, more)
	req, err := http.NewRequest(http.MethodPost, d.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, gjson.Result{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, gjson.Result{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, gjson.Result{}, err
	}
	reply := gjson.ParseBytes(text)
	k.messages = append(k.messages, map[string]string{"role": "assistant", "content": reply.Get("choices.0.message.content").String()})
	return resp.StatusCode, reply, nil
}

// All turns of a conversation reach one replica, with and without the loopback
// listener, even if a client sends the routing headers itself.
func TestConversationAffinity(t *testing.T) {
	for name, direct := range map[string]bool{"loopback": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas(t, 4, &logFile{quiet: true})
			d := start(t, options{config: r.serve, direct: direct})
			used, keys := map[int]bool{}, map[string]bool{}
			for c := range 16 {
				k := newTalk("Be kind.")
				for turn := range 4 {
					content := fmt.Sprintf("Conversation %d, turn %d.\nSAY turn %d", c, turn, turn)
					if status, reply, err := k.ask(d, content, "", "x-harmony-prefix", "mine", "x-harmony-session", "mine"); status != http.StatusOK {
						t.Fatalf("status %d: %s: %v", status, reply.Raw, err)
					}
				}
				served, prefix, session := r.takeCounts()
				i, alone := onlyServed(served, 4)
				if !alone {
					t.Errorf("conversation %d: %v", c, served)
				}
				if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(prefix) || session != prefix {
					t.Errorf("prefix %q, session %q", prefix, session)
				}
				used[i], keys[prefix] = true, true
			}
			if len(used) < 2 || len(keys) != 16 {
				t.Errorf("%d replicas were used, with %d keys", len(used), len(keys))
			}
		})
	}
}

// The responses of a chain reach one replica, even in the background, and so do the
// requests of a session that the client names.
func TestChainAndSessionAffinity(t *testing.T) {
	r := newReplicas(t, 4, &logFile{quiet: true})
	d := start(t, options{config: r.serve})
	post := func(body string, headers ...string) gjson.Result {
		t.Helper()
		resp := d.do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(body), headers...)
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s: %v", resp.Status, text, err)
		}
		return gjson.ParseBytes(text)
	}
	first := post(`{"model":"gpt-oss-20b","input":"SAY one"}`)
	_, want, _ := r.takeCounts()
	second := post(fmt.Sprintf(`{"model":"gpt-oss-20b","input":"SAY two","previous_response_id":%q}`, first.Get("id")))
	if _, got, _ := r.takeCounts(); got != want {
		t.Errorf("the second response's key is %s, not %s", got, want)
	}
	third := post(fmt.Sprintf(`{"model":"gpt-oss-20b","input":"SAY three","previous_response_id":%q,"background":true}`, second.Get("id")))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if served, got, _ := r.takeCounts(); slices.Max(served) > 0 {
			if got != want {
				t.Errorf("the background response's key is %s, not %s", got, want)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the background response %s does not complete", third.Get("id"))
		}
	}
	sessions := map[string]bool{}
	for _, request := range []struct{ body, name, value string }{
		{`{"model":"gpt-oss-20b","input":"SAY a","prompt_cache_key":"s"}`, "session-id", "other"},
		{`{"model":"gpt-oss-20b","input":"SAY b"}`, "session-id", "s"},
		{`{"model":"gpt-oss-20b","input":"SAY c"}`, "session_id", "s"},
		{`{"model":"gpt-oss-20b","input":"SAY d"}`, "conversation_id", "s"},
	} {
		post(request.body, request.name, request.value)
		_, prefix, session := r.takeCounts()
		if prefix == session {
			t.Errorf("%v: no session was seen", request)
		}
		sessions[session] = true
	}
	if _, _, err := newTalk("x").ask(d, "SAY e", `,"prompt_cache_key":"s"`); err != nil {
		t.Fatal(err)
	}
	_, _, session := r.takeCounts()
	if sessions[session] = true; len(sessions) != 1 {
		t.Errorf("%d keys of one session", len(sessions))
	}
}

// A failing replica is ejected. Its conversations continue at another replica
// without errors.
func TestReplicaFails(t *testing.T) {
	for name, die := range map[string]func(*replicas, int){
		"unreachable": func(r *replicas, i int) { r.servers[i].CloseClientConnections(); r.servers[i].Close() },
		"503": func(r *replicas, i int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failing = i
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas(t, 3, &logFile{quiet: true})
			d := start(t, options{config: r.serve})
			k := newTalk("Be kind.")
			ask := func() {
				t.Helper()
				if status, reply, err := k.ask(d, "SAY on", ""); status != http.StatusOK || reply.Get("choices.0.message.content").String() != "on" {
					t.Fatalf("status %d: %s: %v", status, reply.Raw, err)
				}
			}
			ask()
			served, _, _ := r.takeCounts()
			dead, alone := onlyServed(served, 1)
			if !alone {
				t.Fatalf("%v", served)
			}
			die(r, dead)
			for deadline := time.Now().Add(patience); d.stat(t, "cluster.engine_sglang.outlier_detection.ejections_enforced_total") == 0; {
				if ask(); time.Now().After(deadline) {
					t.Fatal("the replica is not ejected")
				}
			}
			served, _, _ = r.takeCounts()
			if served[dead] = 0; served[0]+served[1]+served[2] < 5 {
				t.Errorf("the others served %v", served)
			}
		})
	}
}

// stat returns the value of a counter of Envoy.
func (d *dataplane) stat(t testing.TB, name string) int64 {
	t.Helper()
	resp, err := d.client.Get(d.admin + "/stats?format=json&filter=^" + regexp.QuoteMeta(name) + "$")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	value := gjson.GetBytes(text, "stats.0.value")
	if !value.Exists() {
		t.Fatalf("Envoy has no %s: %s", name, text)
	}
	return value.Int()
}

// BenchmarkAffinity measures how much of the prompts of 200 conversations, with 6
// turns each and 32 at a time, is in the prefix caches of 4 engines, by Envoy's
// load balancing policy.
func BenchmarkAffinity(b *testing.B) {
	policy := func(name, message string) string {
		return fmt.Sprintf("name: envoy.load_balancing_policies.%s\n                  typed_config:\n"+
			`                    "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.%s.v3.%s`, name, name, message)
	}
	maglev := regexp.MustCompile(regexp.QuoteMeta(policy("maglev", "Maglev")) + `\n.*\n.*\{hash_balance_factor: 150\}`)
	for _, way := range []struct {
		name, policy string
		replicas     int
	}{
		{"prefix", "", 4},
		{"least-request", policy("least_request", "LeastRequest"), 4},
		{"round-robin", policy("round_robin", "RoundRobin"), 4},
		{"one-engine", "", 1}, // the upper limit: one engine has all prompts
	} {
		b.Run(way.name, func(b *testing.B) {
			var sum spread
			for b.Loop() {
				r := newReplicas(b, way.replicas, &logFile{quiet: true})
				d := start(b, options{config: r.serve, quiet: true, bootstrap: func(text string) string {
					if maglev.MatchString(text) != (way.replicas > 1) {
						b.Fatal("the bootstrap has changed: its load balancing policy was not found")
					}
					if way.policy == "" {
						return text
					}
					return maglev.ReplaceAllLiteralString(text, way.policy)
				}})
				sum.add(converse(b, d))
				served, _, _ := r.takeCounts()
				sum.busiest += float64(slices.Max(served)) * float64(len(served)) / float64(200*6)
			}
			b.ReportMetric(100*float64(sum.cached)/float64(sum.prompt), "%cached")
			b.ReportMetric(sum.busiest/float64(b.N), "busiest/mean")
			b.ReportMetric(float64(sum.prompt)/float64(b.N)/(200*6), "prompt-tokens")
		})
	}
}

// spread is the result of a run.
type spread struct {
	prompt, cached int64
	busiest        float64 // calls of the busiest engine relative to the mean
}

func (s *spread) add(o spread) {
	s.prompt += o.prompt
	s.cached += o.cached
}

// converse runs 200 conversations of 6 turns, 32 at a time. Their order is random,
// but the same in each run. Each has the instructions of one of 10 applications.
func converse(b *testing.B, d *dataplane) spread {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	words := func(n int) string {
		var text strings.Builder
		for range n {
			fmt.Fprintf(&text, "%s ", []string{"alpha", "river", "stone", "cloud", "seven", "paper", "green", "light"}[random.IntN(8)])
		}
		return text.String()
	}
	applications := make([]string, 10)
	for i := range applications {
		applications[i] = words(800)
	}
	type next struct {
		k    *conversation
		turn int
		text []string
	}
	waiting := make([]*next, 200)
	for i := range waiting {
		n := &next{k: newTalk(applications[i%len(applications)])}
		for range 6 {
			n.text = append(n.text, words(100)+"\nNOTHINK\nWORDS 100 1")
		}
		waiting[i] = n
	}
	var mu sync.Mutex
	var sum spread
	turn := func(n *next) {
		status, reply, err := n.k.ask(d, n.text[n.turn], "")
		mu.Lock()
		defer mu.Unlock()
		if status != http.StatusOK {
			b.Errorf("status %d: %s: %v", status, reply.Raw, err)
		}
		sum.prompt += reply.Get("usage.prompt_tokens").Int()
		sum.cached += reply.Get("usage.prompt_tokens_details.cached_tokens").Int()
		if n.turn++; n.turn < len(n.text) {
			waiting = append(waiting, n)
		}
	}
	// take returns a random conversation that waits for its next turn.
	running := 0
	ended := sync.NewCond(&mu)
	take := func() *next {
		mu.Lock()
		defer mu.Unlock()
		for len(waiting) == 0 && running > 0 {
			ended.Wait()
		}
		if len(waiting) == 0 {
			return nil
		}
		i := random.IntN(len(waiting))
		n := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		running++
		return n
	}
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for n := take(); n != nil; n = take() {
				turn(n)
				mu.Lock()
				running--
				ended.Broadcast()
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return sum
}
