//go:build attack

package attack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// quotaTokens is what each key may use.
const quotaTokens = 20_000

// quotaEngine is an engine that does not keep what it is told.
type quotaEngine struct {
	calls atomic.Int64
	left  atomic.Int64 // calls whose client has left before their end
}

// overshoot answers as vLLM does, with 200,004 tokens where the limit begins with 50, and else with
// a few. It says that more of the prompt was cached than there is.
func (e *quotaEngine) overshoot(w http.ResponseWriter, r *http.Request, body string) {
	e.calls.Add(1)
	brief := !strings.Contains(body, `"max_tokens":50`)
	const usage = `"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":1000000000000000}}`
	w.Header().Set("Content-Type", "text/event-stream")
	first := strings.TrimSuffix(event("[200005,17196,200008,64]"), "}\n\n") + "," + usage + "}\n\n"
	if brief {
		_, _ = io.WriteString(w, first+strings.Replace(event("[200002]"), "null", `"stop"`, 1)+"data: [DONE]\n\n")
		return
	}
	_, _ = io.WriteString(w, first)
	hundred := event("[" + strings.TrimSuffix(strings.Repeat("64,", 100), ",") + "]")
	for range 2000 {
		if _, err := io.WriteString(w, hundred); err != nil || r.Context().Err() != nil {
			e.left.Add(1)
			return
		}
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
	}
}

// heldTokens is how many tokens an answer has that is held back.
const heldTokens = 300

// hold answers as llama.cpp does: with an answer that is no object, or whose end does not come.
func (e *quotaEngine) hold(w http.ResponseWriter, r *http.Request, body string) {
	e.calls.Add(1)
	w.Header().Set("Content-Type", "text/event-stream")

	ids := []int{200005, 17196, 200008, 90} // {
	endless := strings.Contains(body, `"n_predict":1000`)
	if !endless {
		ids[3] = 64
	}

	for len(ids) < heldTokens-1 {
		ids = append(ids, 64)
	}

	for i, id := range append(ids, 200002) {
		if last := i == heldTokens-1; last && endless {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			e.left.Add(1)
			return
		}
		_, _ = fmt.Fprintf(w, `data: {"content":"x","tokens":[%d],"stop":false,"tokens_predicted":%d}`+"\n\n", id, i+1)
	}

	const end = `data: {"content":"","tokens":[],"stop":true,"stop_type":"eos","tokens_predicted":%d}` + "\n\n"
	_, _ = fmt.Fprintf(w, end, heldTokens)
}

// remaining is what is left of the tokens of a key, by the headers of a reply that reserves up
// to 50 tokens of output and the tokens of its prompt.
func (a *attempt) remaining(key string) int {
	a.Helper()
	r := a.post(chatPath, chatBody(simple, `,"max_tokens":1`), "X-Api-Key", key)
	n, err := strconv.Atoi(r.header.Get("X-Ratelimit-Remaining-Tokens"))
	if err != nil {
		a.Fatalf("%s: %v %.200s", r.brief(), r.header, r.text)
	}
	return n
}

// settled checks that the tokens that were made are charged to a key. What is seen includes
// the prompts.
func (a *attempt) settled(key string, before, made int) {
	a.Helper()
	time.Sleep(time.Second) // the reply is settled behind its end
	charged := before - a.remaining(key)
	a.see("%d tokens are charged for %d, with prompts", charged, made)
	if charged < made || charged > made+300 {
		a.Error(a.seen)
	}
}

// quotaArea has quotas of keys, clients that look for a way round them, and engines that make
// more than they are asked to.
func quotaArea() area {
	engine := &quotaEngine{}

	held := func(more string) string {
		body := chatBody(simple, `,"response_format":{"type":"json_object"}`+more)
		return strings.Replace(body, "gpt-oss-20b", "gpt-oss-held", 1)
	}

	const limited = `,"max_tokens":50`
	cut := func(name, path, body, finish, usage string) attack {
		const want = "50 tokens, and the call ends"
		return attack{name: "an engine ignores the limit, " + name, want: want, run: func(a *attempt) {
			left := engine.left.Load()
			r := a.post(path, body, "X-Api-Key", "limit-"+name)

			text := r.text
			for line := range strings.Lines(text) { // of a stream, the event with the usage
				if data, ok := strings.CutPrefix(line, "data: "); ok && gjson.Get(data, usage).Int() > 0 {
					text = data
				}
			}

			n := gjson.Get(text, usage).Int()
			a.see("%s, %d tokens", r.brief(), n)
			if r.status != http.StatusOK || n != 50 || !strings.Contains(r.text, finish) || len(r.text) > 64<<10 {
				a.Errorf("%s, %d tokens in %d bytes: %.500s", r.brief(), n, len(r.text), r.text)
			}

			for deadline := time.Now().Add(stack.Patience); engine.left.Load() == left; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					a.Fatal("the engine goes on")
				}
			}

			if used := quotaTokens - a.remaining("limit-"+name); used > 1000 {
				a.Errorf("%d tokens are charged", used)
			}
		}}
	}

	return area{name: "quota", attacks: []attack{
		{name: "a key with made-up credentials beside it", want: "one budget more, for all", run: func(a *attempt) {
			body := chatBody(simple, `,"max_tokens":5000`)
			admitted := func(n int, headers func(i int) []string) (count int) {
				for i := range n {
					if a.post(chatPath, body, headers(i)...).status == http.StatusOK {
						count++
					}
				}
				return count
			}

			own := admitted(400, func(int) []string { return []string{"X-Api-Key", "mine"} })
			spelled := admitted(20, func(i int) []string {
				return []string{"Authorization", []string{"Bearer mine", "bearer mine", "BEARER  mine", "mine"}[i%4]}
			})
			more := admitted(400, func(i int) []string {
				return []string{"X-Api-Key", "mine", "Authorization", fmt.Sprint("Bearer ", i)}
			})

			a.see("%d, %d spelled otherwise, %d with others", own, spelled, more)
			if own == 0 || own == 400 || spelled > 0 || more > own+5 {
				a.Error(a.seen)
			}
		}},
		cut("chat", chatPath, chatBody(simple, limited), `"finish_reason":"length"`, "usage.completion_tokens"),
		cut("chat streamed", chatPath, chatBody(simple, limited+`,"stream":true,"stream_options":{"include_usage":true}`),
			`"finish_reason":"length"`, "usage.completion_tokens"),
		cut("Responses", responsesPath, responsesBody(simple, `,"max_output_tokens":50`),
			`"status":"incomplete"`, "usage.output_tokens"),
		cut("Messages", "/v1/messages", messagesBody(simple, ""), `"stop_reason":"max_tokens"`, "usage.output_tokens"),
		{name: "an engine has cached 10^15 tokens", want: "at most the prompt", run: func(a *attempt) {
			r := a.post(chatPath, chatBody(simple, `,"max_tokens":9`), "X-Api-Key", "cached")
			cached := gjson.Get(r.text, "usage.prompt_tokens_details.cached_tokens").Int()
			prompt := gjson.Get(r.text, "usage.prompt_tokens").Int()
			a.see("%s, %d of %d", r.brief(), cached, prompt)
			if r.status != http.StatusOK || cached != prompt || prompt == 0 {
				a.Errorf("%s: %.300s", a.seen, r.text)
			}
		}},
		{name: "clients leave while output is held", want: "it is charged", run: func(a *attempt) {
			before, left := a.remaining("held"), engine.left.Load()
			ctx, cancel := context.WithCancel(a.Context())

			body := strings.NewReader(held(`,"max_tokens":1000`))
			calls := engine.calls.Load()
			go func() {
				for deadline := time.Now().Add(stack.Patience); engine.calls.Load() == calls && time.Now().Before(deadline); {
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(time.Second) // the tokens are there
				cancel()
			}()

			req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+chatPath, body)
			if err != nil {
				a.Fatal(err)
			}
			req.Header = http.Header{
				"Content-Type": {"application/json"}, "X-Tenant": {"attacker"}, "X-Api-Key": {"held"},
			}

			if resp, err := a.Client.Do(req); err == nil {
				_ = resp.Body.Close()
				a.Fatalf("the client got %s", resp.Status)
			}

			for deadline := time.Now().Add(stack.Patience); engine.left.Load() == left && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			a.settled("held", before, heldTokens-1)
		}},
		{name: "answers of the wrong form", want: "both are charged", run: func(a *attempt) {
			before, calls := a.remaining("twice"), engine.calls.Load()
			r := a.post(chatPath, held(`,"max_tokens":900`), "X-Api-Key", "twice")

			if made := engine.calls.Load() - calls; made != 2 || r.status != http.StatusBadGateway {
				a.Errorf("%d calls, %s", made, r.brief())
			}
			a.settled("twice", before, 2*heldTokens)
		}},
		{name: "16 choices without reasoning", want: "20 model calls", run: func(a *attempt) {
			body := chatBody(`"THINK one two three\nSAY fine"`, `,"n":16,"max_tokens":200,"thinking_token_budget":0`)
			body = strings.Replace(body, "gpt-oss-20b", "gpt-oss-120b", 1)
			const continued = `harmony_continuations_total{reason="reasoning_budget"}`

			before := a.program.Metric(a.T, continued)
			r := a.post(chatPath, body)
			made := 1 + a.program.Metric(a.T, continued) - before
			a.see("%s, %.0f calls", r.brief(), made)
			if r.status != http.StatusOK || made > 20 {
				a.Error(a.seen)
			}
		}},
		{name: "70,000 keys of their own", want: "nobody gets rid of a count", heavy: true, run: func(a *attempt) {
			exhausted := func() answerOf {
				return a.post(chatPath, chatBody(simple, `,"max_tokens":19500`), "X-Api-Key", "exhausted")
			}

			for n := 0; exhausted().status == http.StatusOK; n++ {
				if n > 400 {
					a.Fatal("the key is never exhausted")
				}
			}

			var next atomic.Int64
			var clients sync.WaitGroup
			for range 32 {
				clients.Go(func() {
					for i := next.Add(1); i <= 70_000; i = next.Add(1) {
						a.post(chatPath, chatBody(simple, `,"max_tokens":9`), "X-Api-Key", fmt.Sprint("made-up-", i))
					}
				})
			}
			clients.Wait()

			dropped := a.program.Metric(a.T, `harmony_budget_counts_dropped_total{budget="keys"}`)
			r := exhausted()
			a.see("%.0f counts made room, then %s", dropped, r.brief())
			if dropped < 1000 || r.status != http.StatusTooManyRequests {
				a.Error(a.seen)
			}
		}},
	}, config: func(t *testing.T, c *stackConfig) {
		bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch r.URL.Path {
			case "/v1/completions":
				engine.overshoot(w, r, string(body))
			case "/completion":
				engine.hold(w, r, string(body))
			default:
				http.NotFound(w, r)
			}
		}))

		t.Cleanup(func() {
			bad.CloseClientConnections()
			bad.Close()
		})

		c.engines = []string{"sglang=SIM", "vllm=" + bad.URL, "llamacpp=" + bad.URL}
		c.set("models", []any{
			map[string]any{"match": "=gpt-oss-20b", "engine": "vllm"},
			map[string]any{"match": "=gpt-oss-held", "engine": "llamacpp"},
		})

		budget := func(match string) any {
			return map[string]any{
				"name": "keys", "per": []any{"key"}, "match": match, "tokens": quotaTokens, "window": "24h",
			}
		}

		c.set("token_budgets", []any{budget("=gpt-oss-20b"), budget("=gpt-oss-held")})
	}}
}
