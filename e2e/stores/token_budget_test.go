package stores

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// year is a window that does not end during a test, unless at the end of a leap year's
// multiple.
const year = 365 * 24 * time.Hour

// budgetRequests are requests of the APIs. %d is the limit of the output, %q the prompt.
var budgetRequests = map[string]string{
	"/v1/chat/completions": `"max_completion_tokens":%d,"messages":[{"role":"user","content":%q}]`,
	"/v1/responses":        `"max_output_tokens":%d,"input":%q`,
	"/v1/messages":         `"max_tokens":%d,"messages":[{"role":"user","content":%q}]`,
}

// spender asks in the name of a tenant.
type spender struct {
	d      *stack.Dataplane
	tenant string
	header []string
}

// spent is what a spender gets.
type spent struct {
	status                            int
	header                            http.Header
	text                              string
	input, output                     int64 // tokens, of a whole object
	limit, remaining, reset, errorMsg string
}

// ask posts a request for at most limit output tokens. fields are more of the body.
func (s *spender) ask(t *testing.T, path, fields, content string, limit int) spent {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,%s`+budgetRequests[path]+"}", stack.VLLMModel, fields, limit, content)
	resp := s.d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(body), append([]string{"x-tenant", s.tenant}, s.header...)...)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	u := gjson.GetBytes(text, "usage")
	r := spent{
		status: resp.StatusCode, header: resp.Header, text: string(text), errorMsg: gjson.GetBytes(text, "error.message").Str,
		input: u.Get("prompt_tokens").Int() + u.Get("input_tokens").Int() + u.Get("cache_read_input_tokens").Int() + u.Get("cache_creation_input_tokens").Int(), output: u.Get("completion_tokens").Int() + u.Get("output_tokens").Int(),
		limit: resp.Header.Get("x-ratelimit-limit-tokens"), remaining: resp.Header.Get("x-ratelimit-remaining-tokens"), reset: resp.Header.Get("x-ratelimit-reset-tokens"),
	}
	if path == "/v1/messages" {
		r.limit, r.remaining, r.reset = resp.Header.Get("anthropic-ratelimit-tokens-limit"), resp.Header.Get("anthropic-ratelimit-tokens-remaining"), resp.Header.Get("anthropic-ratelimit-tokens-reset")
	}
	return r
}

// awaitRemaining asks until the tokens that are left before the request are as many as wanted:
// what a reply has not used is returned behind its end.
func (s *spender) awaitRemaining(t *testing.T, want int64) {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
		r := s.ask(t, "/v1/chat/completions", "", "SAY x", 1_000_000) // never fits
		if r.status != http.StatusTooManyRequests {
			t.Fatalf("status %d: %s", r.status, r.text)
		}
		if r.remaining == strconv.FormatInt(want, 10) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s tokens are left, want %d", r.remaining, want)
		}
	}
}

// perTenant is a budget of each tenant.
func perTenant(tokens int64) config.TokenBudget {
	return config.TokenBudget{Name: "tokens", Per: []string{config.PerTenant}, Tokens: tokens, Window: config.Duration{Duration: year}}
}

func withBudgets(budgets ...config.TokenBudget) func(*config.Config) {
	return func(c *config.Config) { c.TenantHeader, c.TokenBudgets = "x-tenant", budgets }
}

// A budget counts exactly what replies use, in each API, with and without the loopback
// listener; what does not fit is refused in the words of the API.
func TestTokenBudget(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "loopback", true: "direct"}[direct], func(t *testing.T) {
			const budget = 2000
			d := stack.Start(t, stack.Options{Direct: direct, Config: withBudgets(perTenant(budget))})

			for path := range budgetRequests {
				for _, stream := range []string{"false", "true"} {
					s := &spender{d: d, tenant: path + stream}
					probe := (&spender{d: d, tenant: "probe" + path + stream}).ask(t, path, "", "THINK Hm.\nSAY yes", 300)

					r := s.ask(t, path, `"stream":`+stream+`,`, "THINK Hm.\nSAY yes", 300)
					if want := strconv.FormatInt(budget-probe.input-300, 10); r.status != http.StatusOK || r.remaining != want || r.limit != "2000" || r.reset == "" {
						t.Errorf("%s, stream %s: status %d, %s of %s tokens left until %s, want %s", path, stream, r.status, r.remaining, r.limit, r.reset, want)
					}

					left := budget - probe.input - probe.output
					s.awaitRemaining(t, left)
					r = s.ask(t, path, `"stream":`+stream+`,`, "THINK Hm.\nSAY yes", int(left-probe.input)+1)
					if r.status != http.StatusTooManyRequests || r.remaining != strconv.FormatInt(left, 10) || r.header.Get("retry-after") == "" {
						t.Errorf("%s, stream %s: one token too many: %d, %v: %s", path, stream, r.status, r.header, r.text)
					}
					if kind := gjson.Get(r.text, "error.type").Str; kind != map[bool]string{false: "tokens", true: "rate_limit_error"}[path == "/v1/messages"] {
						t.Errorf("%s: %s", path, r.text)
					}

					if r = s.ask(t, path, "", "THINK Hm.\nSAY yes", int(left-probe.input)); r.status != http.StatusOK || r.remaining != "0" {
						t.Errorf("%s, stream %s: all that is left: %d, %s left: %s", path, stream, r.status, r.remaining, r.text)
					}

					r = s.ask(t, path, "", "SAY yes", budget)
					if r.status != http.StatusTooManyRequests || r.header.Get("x-should-retry") != "false" || !strings.Contains(r.errorMsg, "too large") {
						t.Errorf("%s: more than the whole budget: %d, %v: %s", path, r.status, r.header, r.text)
					}
				}
			}
		})
	}
}

// Fifty clients at the same time never exceed a budget, also at two filters that share a
// store, and none is refused that fits.
func TestStoresTokenBudget(t *testing.T) {
	sharedStores(t, func(t *testing.T, url string) {
		const clients, fit, output = 50, 13, 100
		tenant := strconv.FormatInt(time.Now().UnixNano(), 36)
		budget := perTenant(1_000_000)

		begin := func(simURL string, tokens int64) *stack.Dataplane {
			budget.Name, budget.Tokens = "tokens"+strconv.FormatInt(tokens, 10), tokens
			return stack.Start(t, stack.Options{SimURL: simURL, Config: func(c *config.Config) {
				c.StoreURL = url
				withBudgets(budget)(c)
			}})
		}

		const content = "WORDS 1000 50\nSIM delay=20ms"
		probe := begin("", 1_000_000)
		input := (&spender{d: probe, tenant: tenant}).ask(t, "/v1/chat/completions", "", content, 1).input
		tokens := fit*(input+output) + input + output - 1
		planes := []*stack.Dataplane{begin(probe.Sim, tokens), begin(probe.Sim, tokens)}

		var done sync.WaitGroup
		replies := make([]spent, clients)
		for i := range clients {
			done.Go(func() {
				s := spender{d: planes[i%2], tenant: tenant}
				replies[i] = s.ask(t, "/v1/chat/completions", `"reasoning_effort":"low",`, content, output)
			})
		}
		done.Wait()

		ok, used := 0, int64(0)
		for _, r := range replies {
			switch r.status {
			case http.StatusOK:
				ok++
				used += r.input + r.output
			case http.StatusTooManyRequests:
			default:
				t.Errorf("status %d: %s", r.status, r.text)
			}
		}

		if ok != fit || used != fit*(input+output) {
			t.Errorf("%d replies with %d tokens, want %d with %d", ok, used, fit, fit*(input+output))
		}
		(&spender{d: planes[0], tenant: tenant}).awaitRemaining(t, tokens-used)
	})
}

// Where output ends with the budget, a stream ends in good order, and no token is used
// that the budget does not have.
func TestTokenBudgetEnds(t *testing.T) {
	const budget, step = 1000, 64
	b := perTenant(budget)
	b.OnExhausted, b.ReserveTokens = config.ExhaustedEnd, step
	d := stack.Start(t, stack.Options{Config: withBudgets(b)})
	for path, ending := range map[string]string{"/v1/chat/completions": "length", "/v1/responses": "incomplete", "/v1/messages": "max_tokens"} {
		for _, stream := range []string{"false", "true"} {
			s := &spender{d: d, tenant: path + stream}
			r := s.ask(t, path, `"stream":`+stream+`,`, "NOTHINK\nWORDS 100000\nSIM delay=1ms", 100_000)
			if r.status != http.StatusOK || !strings.Contains(r.text, ending) {
				t.Errorf("%s, stream %s: %d: %.2000s", path, stream, r.status, r.text)
			}
			if stream == "false" && (r.input+r.output > budget || r.input+r.output < budget-step) {
				t.Errorf("%s: %d + %d tokens of %d", path, r.input, r.output, budget)
			}
			if r = s.ask(t, path, "", "SAY yes", 10); r.status != http.StatusTooManyRequests {
				t.Errorf("%s: status %d behind the budget's end: %s", path, r.status, r.text)
			}
		}
	}
}

// Budgets are of keys and models, and bound each other; kinds of tokens have weights.
func TestTokenBudgetKinds(t *testing.T) {
	free, tenfold := 0, 1000
	d := stack.Start(t, stack.Options{Config: withBudgets(
		config.TokenBudget{Name: "key", Per: []string{config.PerKey, config.PerModel}, Tokens: 500, Window: config.Duration{Duration: year}},
		config.TokenBudget{Name: "all", Tenant: "unbounded", Window: config.Duration{Duration: year}},
		config.TokenBudget{Name: "all", Match: stack.VLLMModel, Tokens: 7000, Window: config.Duration{Duration: year}, Weights: config.TokenWeights{Input: &free, Cached: &free, Output: &tenfold, Reasoning: &tenfold}},
	)})
	a, b := &spender{d: d, tenant: "x", header: []string{"authorization", "Bearer a"}}, &spender{d: d, tenant: "x", header: []string{"x-api-key", "b"}}
	unbounded := &spender{d: d, tenant: "unbounded", header: []string{"authorization", "Bearer c"}}

	for _, c := range []struct {
		what   string
		who    *spender
		tokens int
		status int
		budget string
	}{
		{"fits", a, 300, http.StatusOK, ""},
		{"the key has no more", a, 400, http.StatusTooManyRequests, "key"},
		{"another key", b, 300, http.StatusOK, ""},
		{"all have no more", &spender{d: d, tenant: "x"}, 400, http.StatusTooManyRequests, "all"},
		{"without a bound", unbounded, 400, http.StatusOK, ""},
	} {
		r := c.who.ask(t, "/v1/chat/completions", "", "NOTHINK\nWORDS 1000", c.tokens)
		if r.status != c.status || c.budget != "" && !strings.Contains(r.errorMsg, strconv.Quote(c.budget)) {
			t.Errorf("%s: status %d, %s", c.what, r.status, r.errorMsg)
		}
	}
}

// A store that fails admits requests where the budget is open, and else refuses them.
func TestTokenBudgetStoreFails(t *testing.T) {
	for policy, want := range map[string]int{config.StoreFailureOpen: http.StatusOK, config.StoreFailureClosed: http.StatusServiceUnavailable, "": http.StatusOK} {
		b := perTenant(1000)
		b.OnStoreFailure = policy
		d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
			withBudgets(b)(c)
			c.StoreURL = "redis://127.0.0.1:1"
		}})
		r := (&spender{d: d, tenant: "x"}).ask(t, "/v1/chat/completions", "", "SAY yes", 10)
		if r.status != want || r.limit != "" {
			t.Errorf("%q: status %d, limit %q: %s", policy, r.status, r.limit, r.text)
		}
	}
}

// A background response that does not fit is refused when it is created. One that does
// is settled when it has ended.
func TestTokenBudgetBackground(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: withBudgets(perTenant(1000))})
	s := &spender{d: d, tenant: "x"}
	r := s.ask(t, "/v1/responses", `"background":true,`, "THINK Hm.\nSAY yes", 300)
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.text)
	}
	object := r.text
	for deadline := time.Now().Add(stack.Patience); gjson.Get(object, "status").Str != "completed"; time.Sleep(20 * time.Millisecond) {
		resp := d.Do(t, http.MethodGet, "/v1/responses/"+gjson.Get(r.text, "id").Str, "", nil, "x-tenant", "x")
		text, err := io.ReadAll(resp.Body)
		if object = string(text); err != nil || time.Now().After(deadline) {
			t.Fatalf("%v: %s", err, object)
		}
	}
	left := 1000 - gjson.Get(object, "usage.total_tokens").Int()
	s.awaitRemaining(t, left)
	if r := s.ask(t, "/v1/responses", `"background":true,`, "SAY yes", int(left)); r.status != http.StatusTooManyRequests {
		t.Errorf("status %d: %s", r.status, r.text)
	}
	s.awaitRemaining(t, left)
}

// A reply whose client leaves, or whose engine fails, is charged with what it has used.
func TestTokenBudgetAborted(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: withBudgets(perTenant(10_000))})
	s := &spender{d: d, tenant: "fails"}
	if r := s.ask(t, "/v1/chat/completions", "", "SAY x\nSIM status=400", 5000); r.status != http.StatusBadRequest && r.status != http.StatusBadGateway {
		t.Errorf("status %d: %s", r.status, r.text)
	}

	s.awaitRemaining(t, 10_000)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()

	body := fmt.Sprintf(`{"model":%q,"stream":true,`+budgetRequests["/v1/chat/completions"]+"}", stack.VLLMModel, 5000, "NOTHINK\nWORDS 100000\nSIM delay=5ms")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tenant", "leaves")

	resp, err := d.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}

	leave()
	s = &spender{d: d, tenant: "leaves"}

	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
		r := s.ask(t, "/v1/chat/completions", "", "SAY x", 1_000_000)
		if left, _ := strconv.Atoi(r.remaining); left > 9000 && left < 10_000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s tokens are left", r.remaining)
		}
	}
}

// A client that leaves before the engine answers has had its prompt computed, and pays for it.
func TestTokenBudgetLeftBeforeTheAnswer(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: withBudgets(perTenant(10_000))})
	ctx, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer leave()
	words := strings.Repeat("word ", 2000)
	body := fmt.Sprintf(`{"model":%q,`+budgetRequests["/v1/chat/completions"]+"}", stack.VLLMModel, 2000, words+"\nSIM first=30s")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tenant", "leaves")
	if resp, err := d.Client.Do(req); err == nil {
		resp.Body.Close()
		t.Fatalf("the engine has answered: %d", resp.StatusCode)
	}

	// Until the reply is settled its output is reserved too.
	s := &spender{d: d, tenant: "leaves"}
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
		r := s.ask(t, "/v1/chat/completions", "", "SAY x", 1_000_000)
		if left, _ := strconv.Atoi(r.remaining); left > 7500 && left < 8000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s tokens are left", r.remaining)
		}
	}
}

// Prices give the cost of a request in the log, the metadata and a metric.
func TestPrices(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := stack.Start(t, stack.Options{Metrics: registry, Config: func(c *config.Config) {
		c.ModelDefaults.Prices = config.Prices{Input: "0.15", CachedInput: "0.05", Output: "0.6"}
	}})

	_, text := d.Chat(t, stack.VLLMModel, "THINK Hm.\nSAY yes", "", "x-request-id", "priced")
	u := gjson.Get(text, "usage")
	cached := u.Get("prompt_tokens_details.cached_tokens").Int()
	want := (float64(u.Get("prompt_tokens").Int()-cached)*0.15 + float64(cached)*0.05 + float64(u.Get("completion_tokens").Int())*0.6) / 1e6

	if got, ok := d.AccessLogMetadata(t, "priced")["cost"].(float64); !ok || got < want*0.999999 || got > want*1.000001 {
		t.Errorf("metadata: %v, want %v", got, want)
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range families {
		if f.GetName() == "harmony_cost_total" {
			if got := f.GetMetric()[0].GetCounter().GetValue(); got < want*0.999999 || got > want*1.000001 {
				t.Errorf("metric: %v, want %v", got, want)
			}
			return
		}
	}
	t.Error("there is no harmony_cost_total")
}
