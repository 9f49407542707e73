package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// accessLogMetadata waits for a request's line in the access log and returns the
// filter's metadata. Envoy flushes its log every ten seconds.
func (d *dataplane) accessLogMetadata(t *testing.T, id string) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		for line := range strings.SplitSeq(d.log.String(), "\n") {
			text, _ := strings.CutPrefix(line, "envoy   ")
			entry := gjson.Parse(text)
			metadata, _ := entry.Get("harmony").Value().(map[string]any)
			maps.DeleteFunc(metadata, func(_ string, v any) bool { return v == nil })
			if metadata["api"] != nil && strings.Contains(entry.Get("request_id").String(), id) { // contained in the engine's own id
				return metadata
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the access log has no metadata of request %s", id)
		}
	}
}

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
			d := start(t, options{direct: tt.direct, config: func(c *config.Config) { c.Routing = tt.routing }})
			d.logsMetadata(t, tt.routing)
		})
	}
}

func (d *dataplane) logsMetadata(t *testing.T, routing config.Routing) {
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
		resp := d.do(t, http.MethodPost, "/v1/"+r.path, "application/json", strings.NewReader(r.body), "x-request-id", id(i), "x-asked", "forged")
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
		got := d.accessLogMetadata(t, id(i))
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
		calls := d.engineRequests(t, id(i))
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
