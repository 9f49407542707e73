package stores

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// askFreely posts a request that names no limit of its output, as most clients do.
func (s *spender) askFreely(t *testing.T, path, content string) spent {
	t.Helper()
	body := map[string]string{
		"/v1/chat/completions": `{"model":%q,"messages":[{"role":"user","content":%q}]}`,
		"/v1/responses":        `{"model":%q,"input":%q}`,
	}[path]
	resp := s.d.Do(t, http.MethodPost, path, "application/json",
		strings.NewReader(fmt.Sprintf(body, stack.VLLMModel, content)), "x-tenant", s.tenant)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	u := gjson.GetBytes(text, "usage")
	return spent{
		status: resp.StatusCode, header: resp.Header, text: string(text),
		input: u.Get("prompt_tokens").Int() + u.Get("input_tokens").Int(), output: u.Get("completion_tokens").Int() + u.Get("output_tokens").Int(),
	}
}

// The first example of docs/token-budgets.md, 100,000 tokens, works with clients that name no
// limit: with twenty at the same time, and without exceeding it.
func TestTokenBudgetOfOrdinaryClients(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "loopback", true: "direct"}[direct], func(t *testing.T) {
			const budget = 100_000
			d := stack.Start(t, stack.Options{Direct: direct, Config: withBudgets(perTenant(budget))})

			s := &spender{d: d, tenant: "twenty"}
			var done sync.WaitGroup
			for i := range 20 {
				path := []string{"/v1/chat/completions", "/v1/responses"}[i%2]
				done.Go(func() {
					if r := s.askFreely(t, path, "THINK Hm.\nSAY yes\nSIM first=500ms"); r.status != http.StatusOK {
						t.Errorf("%s: %d: %s", path, r.status, r.text)
					}
				})
			}
			done.Wait()

			// One that never stops has its share, and ends in good order.
			s.tenant = "long"
			r := s.askFreely(t, "/v1/chat/completions", "NOTHINK\nWORDS 100000")
			if want := (budget - r.input) / 8; r.status != http.StatusOK || r.output != want || !strings.Contains(r.text, `"finish_reason":"length"`) {
				t.Errorf("%d: %d of %d tokens: %.300s", r.status, r.output, want, r.text)
			}
			s.awaitRemaining(t, budget-r.input-r.output)
			if r = s.askFreely(t, "/v1/responses", "NOTHINK\nWORDS 100000"); r.status != http.StatusOK || !strings.Contains(r.text, "max_output_tokens") {
				t.Errorf("%d: %.300s", r.status, r.text)
			}
		})
	}
}

// Replies without limits, at the same time and at two filters that share a store, never exceed
// a budget, though each makes as much as it may.
func TestStoresTokenBudgetWithoutLimits(t *testing.T) {
	sharedStores(t, func(t *testing.T, url string) {
		const clients, tokens = 24, 20_000
		budget := perTenant(tokens)
		tenant := strconv.FormatInt(time.Now().UnixNano(), 36)
		begin := func(simURL string) *stack.Dataplane {
			return stack.Start(t, stack.Options{SimURL: simURL, Config: func(c *config.Config) {
				c.StoreURL = url
				withBudgets(budget)(c)
			}})
		}
		first := begin("")
		planes := []*stack.Dataplane{first, begin(first.Sim)}

		var done sync.WaitGroup
		replies := make([]spent, clients)
		for i := range clients {
			done.Go(func() {
				s := spender{d: planes[i%2], tenant: tenant}
				replies[i] = s.askFreely(t, "/v1/chat/completions", "NOTHINK\nWORDS 100000")
			})
		}
		done.Wait()

		answered, used := 0, int64(0)
		for _, r := range replies {
			switch r.status {
			case http.StatusOK:
				answered++
				used += r.input + r.output
			case http.StatusTooManyRequests:
			default:
				t.Errorf("status %d: %s", r.status, r.text)
			}
		}
		if used > tokens || answered < 4 {
			t.Errorf("%d replies have used %d of %d tokens", answered, used, tokens)
		}
		(&spender{d: planes[0], tenant: tenant}).awaitRemaining(t, tokens-used)
	})
}
