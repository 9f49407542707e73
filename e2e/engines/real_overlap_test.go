//go:build engines

package engines

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// SGLang with its overlap schedule, which prepares a step before it has the tokens of the last one. No player can
// follow that: the weights generate all replies.
func TestRealSGLangOverlap(t *testing.T) {
	e := engineAt(t, "ENGINE_TEST_SGLANG_OVERLAP", "sglang", sglangLoad)
	d := startReal(t, e)
	model := stack.ModelOf(e.kind)
	t.Run("limits", func(t *testing.T) { overlapLimits(t, d, model) })
	t.Run("stop ids", func(t *testing.T) { overlapStops(t, d, model) })
	t.Run("some leave", func(t *testing.T) { overlapAborts(t, d, model, e) })
	t.Run("disconnect", func(t *testing.T) { realDisconnect(t, d, model, e) })
	t.Run("grammars", func(t *testing.T) { randomReplies(t, d, []string{model}, 100) })
	t.Run("too long", func(t *testing.T) { realTooLong(t, d, model) })
	t.Run("cut after the request", func(t *testing.T) {
		proxied(t, e, func(d *stack.Dataplane) {
			if got := randomTokens(t, d, model, 200, ""); len(got) != 200 {
				t.Errorf("%d tokens, want 200", len(got))
			}
		})
	})
}

// noEnd keeps the weights from ending a reply.
const noEnd = `"200002":-100,"199999":-100,"200012":-100`

// randomTokens returns the ids of a reply that has a limit.
func randomTokens(t *testing.T, d *stack.Dataplane, model string, limit int, more string) []gjson.Result {
	t.Helper()
	if more == "" {
		more = `,"logit_bias":{` + noEnd + `}`
	}
	resp, reply := d.Chat(t, model, "Anything.", fmt.Sprintf(`,"return_token_ids":true,"max_completion_tokens":%d%s`, limit, more))
	ids := gjson.Get(reply, "choices.0.token_ids").Array()
	if resp.StatusCode != http.StatusOK || int(gjson.Get(reply, "usage.completion_tokens").Int()) != len(ids) {
		t.Errorf("%s: %d ids: %s", resp.Status, len(ids), reply)
	}
	return ids
}

// More requests than the engine has slots, at the same time: each has as many tokens as its limit says.
func overlapLimits(t *testing.T, d *stack.Dataplane, model string) {
	var clients sync.WaitGroup
	for i := range 32 {
		clients.Go(func() {
			limit := 1 + i*3
			if got := randomTokens(t, d, model, limit, ""); len(got) != limit {
				t.Errorf("%d tokens, want %d", len(got), limit)
			}
		})
	}
	clients.Wait()
}

// The step after a stop id is already under way when it comes: nothing of that step is in the reply.
func overlapStops(t *testing.T, d *stack.Dataplane, model string) {
	const stop = 17196
	lengths := map[int]bool{}
	for range 12 {
		// One token in 16 is the stop id.
		ids := randomTokens(t, d, model, 400, fmt.Sprintf(`,"stop_token_ids":[%d],"logit_bias":{%s,"%d":9.5}`, stop, noEnd, stop))
		lengths[len(ids)] = true
		for i, id := range ids {
			if (id.Int() == stop) != (i == len(ids)-1) {
				t.Errorf("token %d of %d is %d", i, len(ids), id.Int())
			}
		}
	}
	if len(lengths) < 3 {
		t.Errorf("the replies have these lengths: %v", lengths)
	}
}

// Clients that leave do not disturb those that stay.
func overlapAborts(t *testing.T, d *stack.Dataplane, model string, e realEngine) {
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			if i%2 == 0 {
				if got := randomTokens(t, d, model, 150, ""); len(got) != 150 {
					t.Errorf("%d tokens, want 150", len(got))
				}
				return
			}
			leaveStream(t, d, model)
		})
	}
	clients.Wait()
	e.await(t, "idle", func(n int) bool { return n == 0 })
}

// leaveStream leaves a stream that would last minutes, after its first event.
func leaveStream(t *testing.T, d *stack.Dataplane, model string) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"Anything."}],"logit_bias":{%s}}`, model, noEnd)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")

	resp, err := d.Client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Error(err)
	}
}
