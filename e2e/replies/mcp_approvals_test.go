package replies

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const approvedDocs = `{"type":"mcp","server_label":"docs","require_approval":"always"}`

func verdictOf(request string, approve bool) string {
	return fmt.Sprintf(`{"type":"mcp_approval_response","approval_request_id":%q,"approve":%v,"reason":"as I like"}`, request, approve)
}

// requestApproval creates a response that asks for approval of a call of docs.
func requestApproval(t *testing.T, c *stack.ResponsesClient, call string) (r, request gjson.Result) {
	t.Helper()
	r = c.Create(t, "completed", map[string]any{"input": "NOTHINK\nCALL docs." + call, "tools": stack.JSONArray(approvedDocs)})
	wantKinds(t, r, "mcp_list_tools mcp_approval_request")
	return r, r.Get("output.1")
}

// An approval request is answered once. Every other request with a verdict gets the
// result of the first.
func TestMCPApprovedOnce(t *testing.T) {
	server := stack.NewToolServer(t)
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		server.Serve(c)
		c.TenantHeader = "x-tenant"
	}})
	tools := stack.JSONArray(approvedDocs)

	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		c.Header = []string{"x-tenant", "a"}
		other := c.Create(t, "completed", map[string]any{"input": "NOTHINK\nSAY hi", "tools": tools})

		for name, verdicts := range map[string][2]bool{"approved": {true, true}, "approved, then denied": {true, false}, "denied, then approved": {false, true}} {
			t.Run(name, func(t *testing.T) {
				first, asked := requestApproval(t, c, `search {"q":"pay"}`)
				id := asked.Get("id").Str
				before := server.Count("tools/call search")
				calls := map[bool]int{true: 1}[verdicts[0]]
				verdict := func(approve bool) map[string]any {
					return map[string]any{"tools": tools, "input": stack.JSONArray(verdictOf(id, approve)), "previous_response_id": first.Get("id").Str}
				}

				settled := c.Create(t, "completed", verdict(verdicts[0]))
				again := verdict(verdicts[1])
				unrelated := verdict(verdicts[1])
				unrelated["previous_response_id"] = other.Get("id").Str
				alone := map[string]any{"tools": tools, "input": stack.JSONArray(verdictOf(id, verdicts[1]))}
				stateless := map[string]any{"tools": tools, "store": false, "input": stack.JSONArray(`{"role":"user","content":"pay"}`, asked.Raw, verdictOf(id, verdicts[1]))}

				for way, body := range map[string]map[string]any{"again": again, "in another chain": unrelated, "alone": alone, "stateless": stateless} {
					r := c.Create(t, "completed", body)
					same := func(member string) bool {
						return r.Get("output.#(type==mcp_call)."+member).Raw == settled.Get("output.0."+member).Raw
					}

					for _, member := range []string{"status", "name", "arguments", "server_label", "approval_request_id", "output", "error"} {
						if !same(member) {
							t.Errorf("%s: another %s in %s, the first is %s", way, member, r.Get("output"), settled.Get("output.0"))
						}
					}
					if same("id") {
						t.Errorf("%s: two items have one id", way)
					}
				}

				if n := server.Count("tools/call search") - before; n != calls {
					t.Errorf("%d calls, want %d", n, calls)
				}

				for way, body := range map[string]map[string]any{
					"on the chain": {"tools": tools, "input": stack.JSONArray(verdictOf(id, true)), "previous_response_id": settled.Get("id").Str},
					"twice in one": {"tools": tools, "input": stack.JSONArray(verdictOf(id, true), verdictOf(id, true)), "previous_response_id": first.Get("id").Str},
				} {
					if code, r := c.Post(t, body); code != http.StatusBadRequest {
						t.Errorf("%s: status %d: %s", way, code, r)
					}
				}

				stranger := &stack.ResponsesClient{Dataplane: d, Stream: c.Stream, Header: []string{"x-tenant", "b"}}
				if code, r := stranger.Post(t, map[string]any{"tools": tools, "input": stack.JSONArray(verdictOf(id, true))}); code != http.StatusBadRequest {
					t.Errorf("another tenant: status %d: %s", code, r)
				}
			})
		}
	})
}

// Of two concurrent requests with the same approval, one makes the call. The other
// does not wait, and its model is informed.
func TestMCPApprovedTwiceAtOnce(t *testing.T) {
	server := stack.NewToolServer(t)
	d := stack.Start(t, stack.Options{Config: server.Serve})

	for _, stream := range []bool{false, true} {
		first, asked := requestApproval(t, (&stack.ResponsesClient{Dataplane: d}), `meet {"q":"you"}`)
		replies := make(chan gjson.Result, 2)

		go func() { // the call continues after the other request's reply
			<-server.Started
			select {
			case left := <-replies:
				replies <- left
			case <-server.Started:
				t.Error("both made the call")
				server.Release <- struct{}{}
			}
			server.Release <- struct{}{}
		}()

		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			for range 2 {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					c := &stack.ResponsesClient{Dataplane: d, Stream: stream}
					replies <- c.Create(t, "completed", map[string]any{"tools": stack.JSONArray(approvedDocs), "input": stack.JSONArray(verdictOf(asked.Get("id").Str, true)), "previous_response_id": first.Get("id").Str})
				})
			}
		})

		if t.Failed() {
			return
		}
		made, left := <-replies, <-replies
		if made.Get("output.0.status").Str != "completed" {
			made, left = left, made
		}

		wantKinds(t, made, "mcp_call message")
		wantKinds(t, left, "mcp_call:failed message")
		if made.Get("output.0.output").Str != "met you" || !strings.Contains(left.Get("output.0.error").Raw, "outcome of this call is not known") {
			t.Errorf("the calls are %s and %s", made.Get("output.0"), left.Get("output.0"))
		}
	}

	if n := server.Count("tools/call meet"); n != 2 {
		t.Errorf("%d calls for two approvals", n)
	}
}

// If a client repeats its request because the engine failed after the call, the
// call is not repeated.
func TestMCPApprovedWhileEngineIsDown(t *testing.T) {
	server, r := stack.NewToolServer(t), stack.NewReplicas(t, 1, &stack.LogFile{Quiet: true})
	var down atomic.Bool
	next := r.Servers[0].Config.Handler
	r.Servers[0].Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, q)
	})

	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		r.Serve(c)
		server.Serve(c)
	}})

	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		first, asked := requestApproval(t, c, `search {"q":"pay"}`)
		before := server.Count("tools/call search")
		body := map[string]any{"tools": stack.JSONArray(approvedDocs), "input": stack.JSONArray(verdictOf(asked.Get("id").Str, true)), "previous_response_id": first.Get("id").Str}

		down.Store(true)
		for range 3 { // like the retries of SDKs
			if code, r := c.Post(t, body); code == http.StatusOK && r.Get("status").Str != "failed" {
				t.Errorf("status %d without an engine: %s", code, r)
			}
		}

		down.Store(false)
		reply := c.Create(t, "completed", body)
		wantKinds(t, reply, "mcp_call message")
		if reply.Get("output.0.output").Str != "found pay" || stack.LastText(reply) != "RESULT: found pay" {
			t.Errorf("the output is %s", reply.Get("output"))
		}

		if n := server.Count("tools/call search") - before; n != 1 {
			t.Errorf("%d calls for one approval", n)
		}
	})
}
