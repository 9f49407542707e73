package gateways

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// TestUnpacedEnvoy shows what the filter's log says of an Envoy of somebody's own that lacks
// a part of pacing: nothing else shows it until a client does not read.
func TestUnpacedEnvoy(t *testing.T) {
	const (
		metadata = `initial_metadata: [{key: x-harmony-pacing, value: "on"}]`
		route    = `string_match: {exact: "-pacing"}`
		filler   = `function envoy_on_request(request)`
		ask      = `{"model":%q,"stream":true,"messages":[{"role":"user","content":"SAY Hello"}]}`
	)
	without := func(t *testing.T, part, other string) *stack.Dataplane {
		return stack.Start(t, stack.Options{Quiet: true, Bootstrap: func(text string) string {
			if !strings.Contains(text, part) {
				t.Fatalf("the bootstrap has no %s", part)
			}
			return strings.ReplaceAll(text, part, other)
		}})
	}
	logged := func(t *testing.T, d *stack.Dataplane, text string, times int) {
		t.Helper()
		stack.Eventually(t, text+" in the log", func() bool { return strings.Count(d.Logs.String(), text) == times })
	}

	t.Run("without the metadata", func(t *testing.T) {
		d := without(t, metadata, "initial_metadata: []")
		for range 2 {
			if reply := d.Answer(t, "/v1/chat/completions", fmt.Sprintf(ask, stack.VLLMModel)); !strings.Contains(reply, "Hello") {
				t.Errorf("the reply is %s", reply)
			}
		}
		logged(t, d, "Replies are not paced", 1)
	})
	t.Run("without the route", func(t *testing.T) {
		d := without(t, route, `string_match: {exact: "-nobody"}`)
		if status, body := d.Post(t, "/v1/chat/completions", fmt.Sprintf(ask, stack.VLLMModel)); status != http.StatusServiceUnavailable {
			t.Errorf("the status is %d: %s", status, body)
		}
		logged(t, d, "no route for pacing stands before the others", 1)
		logged(t, d, "Replies are not paced", 0)
	})
	t.Run("without the body of GETs", func(t *testing.T) {
		d := without(t, filler, "function unused(request)")
		response := d.Answer(t, "/v1/responses", fmt.Sprintf(`{"model":%q,"background":true,"stream":true,"input":"SAY Hello"}`, stack.VLLMModel))
		_, id, _ := strings.Cut(response, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		logged(t, d, "What is stored is not paced", 0)
		resp := d.Do(t, http.MethodGet, "/v1/responses/"+id+"?stream=true", "", nil)
		if text := stack.ReadText(t, resp); !strings.Contains(text, "response.completed") {
			t.Errorf("the stream of %s is %s", id, text)
		}
		logged(t, d, "What is stored is not paced", 1)
	})
}
