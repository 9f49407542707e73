package replies

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A client that leaves in the middle of a stream is charged with the prompt and what the engine has
// made for it until then, in every API, on both ways.
func TestLeftStreamsAreCharged(t *testing.T) {
	for _, direct := range []bool{false, true} {
		d := stack.Start(t, stack.Options{Direct: direct, Config: func(c *config.Config) {
			c.TokenBudgets = []config.TokenBudget{{Name: "tokens", Tokens: 1_000_000, Window: config.Duration{Duration: 365 * 24 * time.Hour}}}
		}})
		remaining := func() int {
			t.Helper()
			resp, text := d.Chat(t, stack.SGLangModel, "NOTHINK\nSAY x", `,"max_tokens":5`)
			n, err := strconv.Atoi(resp.Header.Get("x-ratelimit-remaining-tokens"))
			if err != nil {
				t.Fatalf("%v: %s", resp.Header, text)
			}
			return n
		}

		for _, a := range stack.FaultAPIs {
			first := remaining()
			before := remaining()
			probe := first - before // what asking costs

			ctx, leave := context.WithCancel(t.Context())
			body := a.Body(stack.SGLangModel, "NOTHINK\nWORDS 400 20", true)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+a.Path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Request-Id", "left-"+a.Name)
			resp, err := d.Client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			const seen = 20
			events, lines := 0, bufio.NewScanner(resp.Body)
			for events < 2*seen && lines.Scan() {
				if strings.HasPrefix(lines.Text(), "data: ") {
					events++
				}
			}
			leave()
			resp.Body.Close()

			call := d.AwaitEngine(t, "left-"+a.Name, stack.StateCancelled)
			prompt, made := len(call.PromptIDs), len(call.OutputIDs[0])
			charged, asked := 0, 0
			stack.Eventually(t, "the settlement", func() bool {
				asked++
				charged = before - remaining() - asked*probe
				return charged <= prompt+made
			})
			if made < seen || charged < prompt+seen {
				t.Errorf("%s, direct %t: %d tokens are charged for a prompt of %d and an output of %d", a.Name, direct, charged, prompt, made)
			}
		}
	}
}
