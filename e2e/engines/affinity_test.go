package engines

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// All turns of a conversation reach one replica, with and without the loopback
// listener, even if a client sends the routing headers itself.
func TestConversationAffinity(t *testing.T) {
	for name, direct := range map[string]bool{"loopback": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			r := stack.NewReplicas(t, 4, &stack.LogFile{Quiet: true})
			d := stack.Start(t, stack.Options{Config: r.Serve, Direct: direct})
			used, keys := map[int]bool{}, map[string]bool{}

			for c := range 16 {
				k := stack.NewConversation("Be kind.")
				for turn := range 4 {
					content := fmt.Sprintf("Conversation %d, turn %d.\nSAY turn %d", c, turn, turn)
					if status, reply, err := k.Ask(d, content, "", "x-harmony-prefix", "mine", "x-harmony-session", "mine"); status != http.StatusOK {
						t.Fatalf("status %d: %s: %v", status, reply.Raw, err)
					}
				}

				served, prefix, session := r.TakeCounts()
				i, alone := stack.OnlyServed(served, 4)
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
	r := stack.NewReplicas(t, 4, &stack.LogFile{Quiet: true})
	d := stack.Start(t, stack.Options{Config: r.Serve})
	post := func(body string, headers ...string) gjson.Result {
		t.Helper()
		return gjson.Parse(d.Answer(t, "/v1/responses", body, headers...))
	}

	first := post(`{"model":"gpt-oss-20b","input":"SAY one"}`)
	_, want, _ := r.TakeCounts()

	second := post(fmt.Sprintf(`{"model":"gpt-oss-20b","input":"SAY two","previous_response_id":%q}`, first.Get("id")))
	if _, got, _ := r.TakeCounts(); got != want {
		t.Errorf("the second response's key is %s, not %s", got, want)
	}

	third := post(fmt.Sprintf(`{"model":"gpt-oss-20b","input":"SAY three","previous_response_id":%q,"background":true}`, second.Get("id")))
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(10 * time.Millisecond) {
		if served, got, _ := r.TakeCounts(); slices.Max(served) > 0 {
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
		_, prefix, session := r.TakeCounts()
		if prefix == session {
			t.Errorf("%v: no session was seen", request)
		}
		sessions[session] = true
	}

	if _, _, err := stack.NewConversation("x").Ask(d, "SAY e", `,"prompt_cache_key":"s"`); err != nil {
		t.Fatal(err)
	}
	_, _, session := r.TakeCounts()
	if sessions[session] = true; len(sessions) != 1 {
		t.Errorf("%d keys of one session", len(sessions))
	}
}

// A failing replica is ejected. Its conversations continue at another replica
// without errors.
func TestReplicaFails(t *testing.T) {
	for name, die := range map[string]func(*stack.Replicas, int){
		"unreachable": func(r *stack.Replicas, i int) { r.Servers[i].CloseClientConnections(); r.Servers[i].Close() },
		"503": func(r *stack.Replicas, i int) {
			r.Mu.Lock()
			defer r.Mu.Unlock()
			r.Failing = i
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := stack.NewReplicas(t, 3, &stack.LogFile{Quiet: true})
			d := stack.Start(t, stack.Options{Config: r.Serve})
			k := stack.NewConversation("Be kind.")

			ask := func() {
				t.Helper()
				if status, reply, err := k.Ask(d, "SAY on", ""); status != http.StatusOK || reply.Get("choices.0.message.content").String() != "on" {
					t.Fatalf("status %d: %s: %v", status, reply.Raw, err)
				}
			}

			ask()
			served, _, _ := r.TakeCounts()
			dead, alone := stack.OnlyServed(served, 1)
			if !alone {
				t.Fatalf("%v", served)
			}

			die(r, dead)
			for deadline := time.Now().Add(stack.Patience); d.Stat(t, "cluster.engine_sglang.outlier_detection.ejections_enforced_total") == 0; {
				if ask(); time.Now().After(deadline) {
					t.Fatal("the replica is not ejected")
				}
			}

			served, _, _ = r.TakeCounts()
			if served[dead] = 0; served[0]+served[1]+served[2] < 5 {
				t.Errorf("the others served %v", served)
			}
		})
	}
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
				r := stack.NewReplicas(b, way.replicas, &stack.LogFile{Quiet: true})
				d := stack.Start(b, stack.Options{Config: r.Serve, Quiet: true, Bootstrap: func(text string) string {
					if maglev.MatchString(text) != (way.replicas > 1) {
						b.Fatal("the bootstrap has changed: its load balancing policy was not found")
					}
					if way.policy == "" {
						return text
					}
					return maglev.ReplaceAllLiteralString(text, way.policy)
				}})

				sum.add(converse(b, d))
				served, _, _ := r.TakeCounts()
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
func converse(b *testing.B, d *stack.Dataplane) spread {
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
		k    *stack.Conversation
		turn int
		text []string
	}

	waiting := make([]*next, 200)
	for i := range waiting {
		n := &next{k: stack.NewConversation(applications[i%len(applications)])}
		for range 6 {
			n.text = append(n.text, words(100)+"\nNOTHINK\nWORDS 100 1")
		}
		waiting[i] = n
	}

	var mu sync.Mutex
	var sum spread
	turn := func(n *next) {
		status, reply, err := n.k.Ask(d, n.text[n.turn], "")
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
