package stack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// Replicas are engines that serve one model: simulated engines behind servers that
// count model calls.
type Replicas struct {
	Servers []*httptest.Server

	Mu sync.Mutex
	// Failing is the replica that answers 503 to all requests, -1 if none does.
	Failing int
	// served counts the calls of each replica.
	served []int
	// prefix and session are the keys of each call, in order.
	prefix  []string
	session []string
}

// NewReplicas starts n replicas.
func NewReplicas(t testing.TB, n int, log *LogFile) *Replicas {
	r := &Replicas{served: make([]int, n), Failing: -1}
	for i := range n {
		next := Forward(t, StartSim(t, log))
		r.Servers = append(r.Servers, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			r.Mu.Lock()
			dead := r.Failing == i
			r.served[i]++
			r.prefix = append(r.prefix, q.Header.Get("x-harmony-prefix"))
			r.session = append(r.session, q.Header.Get("x-harmony-session"))
			r.Mu.Unlock()
			if dead {
				http.Error(w, "dead", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, q)
		})))
		t.Cleanup(r.Servers[i].Close)
	}
	return r
}

// Serve configures the replicas as the only engine.
func (r *Replicas) Serve(c *config.Config) {
	c.Models = nil
	c.Engines = []config.Engine{{Kind: "sglang"}}
	for _, s := range r.Servers {
		c.Engines[0].URLs = append(c.Engines[0].URLs, s.URL)
	}
}

// TakeCounts returns and resets the number of calls of each replica, and returns
// the keys of the last call.
func (r *Replicas) TakeCounts() (served []int, prefix, session string) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	served = slices.Clone(r.served)
	clear(r.served)
	if n := len(r.prefix); n > 0 {
		prefix, session = r.prefix[n-1], r.session[n-1]
		r.prefix, r.session = nil, nil
	}
	return served, prefix, session
}

// OnlyServed returns the replica that has served n calls while no other has served
// any.
func OnlyServed(served []int, n int) (int, bool) {
	i := slices.Index(served, n)
	rest := slices.Clone(served)
	if i >= 0 {
		rest[i] = 0
	}
	return i, i >= 0 && !slices.ContainsFunc(rest, func(n int) bool { return n != 0 })
}

// Conversation is a chat that grows by a turn with each message.
type Conversation struct{ messages []map[string]string }

// NewConversation begins a conversation with instructions.
func NewConversation(instructions string) *Conversation {
	return &Conversation{[]map[string]string{{"role": "system", "content": instructions}}}
}

// Ask sends the next message and returns the status and the reply.
func (k *Conversation) Ask(d *Dataplane, content, more string, headers ...string) (int, gjson.Result, error) {
	k.messages = append(k.messages, map[string]string{"role": "user", "content": content})
	messages, err := json.Marshal(k.messages)
	if err != nil {
		return 0, gjson.Result{}, err
	}
	body := fmt.Sprintf(`{"model":%q,"messages":%s%s}`, SGLangModel, messages, more)
	req, err := http.NewRequest(http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, gjson.Result{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := d.Client.Do(req)
	if err != nil {
		return 0, gjson.Result{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, gjson.Result{}, err
	}

	reply := gjson.ParseBytes(text)
	k.messages = append(k.messages, map[string]string{
		"role":    "assistant",
		"content": reply.Get("choices.0.message.content").String(),
	})
	return resp.StatusCode, reply, nil
}

// Stat returns the value of a counter of Envoy.
func (d *Dataplane) Stat(t testing.TB, name string) int64 {
	t.Helper()
	text := AdminPage(t, d.Admin+"/stats?format=json&filter=^"+regexp.QuoteMeta(name)+"$")
	value := gjson.Get(text, "stats.0.value")
	if !value.Exists() {
		t.Fatalf("Envoy has no %s: %s", name, text)
	}
	return value.Int()
}
