package gateways

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// The filter's metadata of a request and its reply is in Envoy's access log, with and
// without the loopback listener, whatever the result of the request is. It never contains the
// user's text. If configured, a header of the model call has that text.
func TestMetadata(t *testing.T) {
	for _, tt := range []struct {
		name    string
		direct  bool
		routing config.Routing
	}{
		{"loopback", false, config.Routing{}},
		{"direct", true, config.Routing{}},
		{"loopback with text", false, config.Routing{SelectionTextBytes: 16, SelectionHeader: "x-asked"}},
		{"direct with text", true, config.Routing{SelectionTextBytes: 16, SelectionHeader: "x-asked"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // the log is flushed late
			d := stack.Start(t, stack.Options{Direct: tt.direct, Config: func(c *config.Config) { c.Routing = tt.routing }})
			logsMetadata(t, d, tt.routing)
		})
	}
}

func logsMetadata(t *testing.T, d *stack.Dataplane, routing config.Routing) {
	t.Helper()
	requests := []struct{ path, body, want, text string }{
		{
			"chat/completions", `{"model":"gpt-oss-20b","max_tokens":50,"n":2,"messages":[{"role":"system","content":"s"},{"role":"user","content":"NOTHINK\n\n SAY  naïve 🙂"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]}`,
			`{"api":"chat","model":"gpt-oss-20b","engine":"sglang","stream":false,"choices":2,"max_tokens":50,"items":2,"tools":2,"outcome":"ok","status":200,"finish":"stop"}`, "NOTHINK SAY naï",
		},
		{
			"chat/completions", `{"model":"gpt-oss-120b","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"SAY a"}]}`,
			`{"api":"chat","model":"gpt-oss-120b","engine":"vllm","stream":true,"choices":1,"max_tokens":50,"items":1,"tools":0,"outcome":"ok","status":200,"finish":"stop"}`, "SAY a",
		},
		{
			"chat/completions", `{"model":"gpt-oss-20b","max_tokens":50,"messages":[{"role":"system","content":"Nobody asks."}]}`,
			`{"api":"chat","model":"gpt-oss-20b","engine":"sglang","stream":false,"choices":1,"max_tokens":50,"items":1,"tools":0,"outcome":"ok","status":200,"finish":"stop"}`, "",
		},
		{
			"responses", `{"model":"gpt-oss-20b","max_output_tokens":60,"input":"SAY a"}`,
			`{"api":"responses","model":"gpt-oss-20b","engine":"sglang","stream":false,"choices":1,"max_tokens":60,"items":1,"tools":0,"outcome":"ok","status":200,"finish":"stop"}`, "SAY a",
		},
		{
			"chat/completions", `{"model":"gpt-oss-20b","max_tokens":50,"messages":[{"role":"user","content":"SIM status=429"}]}`,
			`{"api":"chat","model":"gpt-oss-20b","engine":"sglang","stream":false,"choices":1,"max_tokens":50,"items":1,"tools":0,"outcome":"rejected","status":429}`, "SIM status=429",
		},
	}

	id := func(i int) string { return fmt.Sprintf("metadata-%d", i) }
	for i, r := range requests {
		resp := d.Do(t, http.MethodPost, "/v1/"+r.path, "application/json", strings.NewReader(r.body), "x-request-id", id(i), "x-asked", "forged")
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
	}

	for i, r := range requests {
		want, _ := gjson.Parse(r.want).Value().(map[string]any)
		asked := "forged"
		if routing.SelectionTextBytes > 0 {
			asked = r.text
		}

		got := d.AccessLogMetadata(t, id(i))
		numbers := map[string]float64{}
		for _, field := range []string{"prompt_tokens", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "total_tokens", "repairs", "retries", "tool_calls", "time_to_first_token_ms"} {
			if n, ok := got[field].(float64); ok {
				numbers[field] = n
			}
			delete(got, field)
		}

		if diff := cmp.Diff(want, got); diff != "" || numbers["prompt_tokens"] < 50 {
			t.Errorf("%s, %v (-want +got):\n%s", r.body, numbers, diff)
		}
		if ok := want["outcome"] == "ok"; ok != (len(numbers) == 10) || ok != (numbers["total_tokens"] == numbers["prompt_tokens"]+numbers["output_tokens"]) {
			t.Errorf("%s: %v", r.body, numbers)
		}

		calls := d.EngineRequests(t, id(i))
		if len(calls) == 0 {
			t.Errorf("%s: the engine got no request", r.body)
		}
		for _, call := range calls {
			sent, ok := call.Header["x-asked"]
			if text, err := url.PathUnescape(sent); text != asked || ok != (asked != "") || err != nil {
				t.Errorf("%s: the engine gets the text %q, %v, want %q", r.body, text, err, asked)
			}
		}
	}
}
