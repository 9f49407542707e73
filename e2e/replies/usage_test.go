package replies

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	aitypev3 "github.com/envoyproxy/go-control-plane/envoy/type/ai/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// usageRequest is a request and what Envoy learns of its reply.
type usageRequest struct {
	name, path, body string
	status           int
	want             string // fields of the metadata, without those of tokens
	answered         bool   // there are fields of tokens
}

var usageRequests = []usageRequest{
	{
		"chat", "chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"THINK hm\nSAY hello"}]}`, 200,
		`{"outcome":"ok","status":200,"finish":"stop","repairs":0,"retries":0,"tool_calls":0}`, true,
	},
	{
		"chat streamed", "chat/completions", `{"model":"gpt-oss-120b","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"THINK hm\nSAY hello"}]}`, 200,
		`{"outcome":"ok","status":200,"finish":"stop","repairs":0,"retries":0,"tool_calls":0}`, true,
	},
	{
		"responses", "responses", `{"model":"gpt-oss-20b","input":"THINK hm\nSAY hello"}`, 200,
		`{"outcome":"ok","status":200,"finish":"stop","repairs":0,"retries":0,"tool_calls":0}`, true,
	},
	{
		"responses streamed", "responses", `{"model":"gpt-oss-20b","stream":true,"input":"THINK hm\nSAY hello"}`, 200,
		`{"outcome":"ok","status":200,"finish":"stop","repairs":0,"retries":0,"tool_calls":0}`, true,
	},
	{
		"too long", "chat/completions", `{"model":"gpt-oss-20b","max_tokens":3,"messages":[{"role":"user","content":"NOTHINK\nSAY one two three four five six"}]}`, 200,
		`{"outcome":"ok","status":200,"finish":"length","repairs":0,"retries":0,"tool_calls":0}`, true,
	},
	{
		"repaired", "chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"@@<channel>analysis<message>hm<end><message>no header<return>@@"}]}`, 200,
		`{"outcome":"ok","status":200,"finish":"stop","repairs":2,"retries":0,"tool_calls":0}`, true,
	},
	{
		"the engine rejects", "chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SIM status=429"}]}`, 429,
		`{"outcome":"rejected","status":429,"retries":0,"tool_calls":0}`, false,
	},
	{
		"invalid", "chat/completions", `{"model":"gpt-oss-20b","messages":7}`, 400,
		`{"outcome":"rejected","status":400,"retries":0,"tool_calls":0}`, false,
	},
	{
		"error in the stream", "chat/completions", `{"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 40\nSIM fault=error@20 delay=2ms"}]}`, 200,
		`{"outcome":"failed","status":502,"repairs":0,"retries":0,"tool_calls":0}`, true,
	},
}

// At the end of each reply Envoy learns what it has cost and how it ended, the same
// with and without the loopback listener, and the same numbers as the client.
func TestUsageMetadata(t *testing.T) {
	for name, direct := range map[string]bool{"loopback": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			logger := stack.StartAccessLogger(t)
			d := stack.Start(t, stack.Options{Direct: direct, Bootstrap: logger.Bootstrap})
			for i, r := range usageRequests {
				t.Run(r.name, func(t *testing.T) {
					id := fmt.Sprintf("usage-%d", i)
					resp := d.Do(t, http.MethodPost, "/v1/"+r.path, "application/json", strings.NewReader(r.body), "x-request-id", id)
					reply, err := io.ReadAll(resp.Body)
					if err != nil || resp.StatusCode != r.status {
						t.Fatalf("status %d, %v: %s", resp.StatusCode, err, reply)
					}
					checkUsage(t, d, logger.Entry(t, id), r, string(reply))
				})
			}
		})
	}
}

func checkUsage(t *testing.T, d *stack.Dataplane, e stack.LogEntry, r usageRequest, reply string) {
	t.Helper()
	got := map[string]any{}
	for _, field := range []string{"outcome", "status", "finish", "repairs", "retries", "tool_calls"} {
		if v, ok := e.Metadata[field]; ok {
			got[field] = v
		}
	}

	if diff := cmp.Diff(gjson.Parse(r.want).Value(), any(got)); diff != "" {
		t.Errorf("metadata (-want +got):\n%s\nof %v", diff, e.Metadata)
	}

	number := func(field string) int64 { n, _ := e.Metadata[field].(float64); return int64(n) }
	input, output := number("input_tokens"), number("output_tokens")
	if r.answered != (input > 0) || r.answered != (output > 0) || number("total_tokens") != input+output || r.answered != (e.Metadata["time_to_first_token_ms"] != nil) {
		t.Errorf("tokens in %v", e.Metadata)
	}

	if e.Metadata["api"] == nil || e.Metadata["model"] == nil || e.Metadata["engine"] == nil {
		t.Errorf("names in %v", e.Metadata)
	}

	if told := stack.LastUsage(reply); told.Exists() {
		checkUsageTold(t, e, told)
	}
	checkTypedUsage(t, d, e, r)
}

// checkUsageTold compares what Envoy learns with what the client is told.
func checkUsageTold(t *testing.T, e stack.LogEntry, told gjson.Result) {
	t.Helper()
	for field, paths := range map[string]string{
		"input_tokens":     "[prompt_tokens,input_tokens]",
		"cached_tokens":    "[prompt_tokens_details.cached_tokens,input_tokens_details.cached_tokens]",
		"output_tokens":    "[completion_tokens,output_tokens]",
		"reasoning_tokens": "[completion_tokens_details.reasoning_tokens,output_tokens_details.reasoning_tokens]",
		"total_tokens":     "[total_tokens]",
	} {
		if got := e.Metadata[field]; got != told.Get(paths+".0").Value() {
			t.Errorf("%s is %v, and the client is told %s", field, got, told)
		}
	}
}

// checkTypedUsage checks the typed metadata, which older Envoys ignore.
func checkTypedUsage(t *testing.T, d *stack.Dataplane, e stack.LogEntry, r usageRequest) {
	t.Helper()

	version := d.EnvoyVersion(t)
	if strings.HasPrefix(version, "1.38.") || strings.HasPrefix(version, "1.39.") || !r.answered {
		if e.Usage != nil {
			t.Errorf("Envoy %s has the typed metadata %v", version, e.Usage)
		}
		return
	}

	number := func(field string) *wrapperspb.UInt64Value {
		n, ok := e.Metadata[field].(float64)
		if !ok {
			return nil
		}
		return wrapperspb.UInt64(uint64(n))
	}

	model, _ := e.Metadata["model"].(string)
	want := &aidatav3.TokenUsage{
		LlmProtocol: aitypev3.LLMProtocol_OPENAI_CHAT_COMPLETIONS, Model: model,
		InputTokens: number("input_tokens"), OutputTokens: number("output_tokens"), TotalTokens: number("total_tokens"),
		OutputTokenDetails: &aidatav3.OutputTokenDetails{ReasoningTokens: number("reasoning_tokens")},
		ExtractionStatus:   aidatav3.TokenUsage_COMPLETE,
	}

	if r.path == "responses" {
		want.LlmProtocol = aitypev3.LLMProtocol_OPENAI_RESPONSES
	}
	if cached := number("cached_tokens"); cached != nil {
		want.InputTokenDetails = &aidatav3.InputTokenDetails{CachedTokens: cached}
	}
	if e.Metadata["outcome"] != "ok" {
		want.ExtractionStatus = aidatav3.TokenUsage_PARTIAL
	}

	if diff := cmp.Diff(want, e.Usage, protocmp.Transform()); diff != "" {
		t.Errorf("typed metadata (-want +got):\n%s", diff)
	}
}

// A reply with tool calls reports the tokens of all its model calls. One in the
// background reports what its request knows: there are no tokens yet.
func TestUsageMetadataOfLoops(t *testing.T) {
	server, logger := stack.NewToolServer(t), stack.StartAccessLogger(t)
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { server.Serve(c) }, Bootstrap: logger.Bootstrap})
	for _, stream := range []string{"false", "true"} {
		id := "loop-" + stream
		reply := d.Answer(t, "/v1/responses",
			`{"model":"gpt-oss-20b","stream":`+stream+`,"input":"NOTHINK\nCALL docs.search {\"q\":\"one\"}\nCALL docs.search {\"q\":\"two\"}","tools":[`+stack.DocsTool+`]}`, "x-request-id", id)
		checkUsage(t, d, logger.Entry(t, id), usageRequest{
			path: "responses", want: `{"outcome":"ok","status":200,"finish":"stop","repairs":0,"retries":0,"tool_calls":2}`, answered: true,
		}, reply)
	}

	d.Answer(t, "/v1/responses", `{"model":"gpt-oss-20b","background":true,"input":"SAY a"}`, "x-request-id", "queued")
	checkUsage(t, d, logger.Entry(t, "queued"), usageRequest{path: "responses", want: `{"outcome":"ok","status":200,"retries":0,"tool_calls":0}`}, "")
}

// A client that leaves gets no end of its reply, and Envoy learns of none.
func TestNoUsageOfAClientThatLeaves(t *testing.T) {
	logger := stack.StartAccessLogger(t)
	d := stack.Start(t, stack.Options{Bootstrap: logger.Bootstrap})
	resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(
		`{"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 100\nSIM fault=hang@10"}]}`), "x-request-id", "leaves")
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	e := logger.Entry(t, "leaves")
	if e.Metadata["prompt_tokens"] == nil || e.Metadata["outcome"] != nil || e.Usage != nil {
		t.Errorf("metadata %v, usage %v", e.Metadata, e.Usage)
	}
	d.AwaitEngine(t, "leaves", stack.StateCancelled)
}

// Replies explain by headers what was decided, as far as it is known when they
// begin. The operator chooses which.
func TestReplyHeaders(t *testing.T) {
	server := stack.NewToolServer(t)
	for _, direct := range []bool{false, true} {
		d := stack.Start(t, stack.Options{Direct: direct, Config: func(c *config.Config) { server.Serve(c) }})

		explained := func(path, body string) (headers, reply string) {
			resp := d.Do(t, http.MethodPost, "/v1/"+path, "application/json", strings.NewReader(body), "x-harmony-retries", "9", "x-harmony-prompt-tokens", "9", "x-request-id", "explained")
			reply = stack.ReadText(t, resp)
			var all []string
			for name, values := range resp.Header {
				if name = strings.ToLower(name); strings.HasPrefix(name, "x-harmony-") {
					all = append(all, strings.TrimPrefix(name, "x-harmony-")+"="+values[0])
				}
			}
			slices.Sort(all)
			return strings.Join(all, " "), reply
		}

		for name, r := range map[string]struct{ path, body, want string }{
			"object":   {"chat/completions", `{"model":"gpt-oss-20b","user":"x","messages":[{"role":"user","content":"SAY hello"}]}`, "cached-tokens=C engine=sglang ignored=user prompt-tokens=P"},
			"stream":   {"chat/completions", `{"model":"gpt-oss-120b","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"SAY hello"}]}`, "engine=vllm prompt-tokens=P"},
			"error":    {"chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SIM status=429"}]}`, "engine=sglang prompt-tokens=P"},
			"invalid":  {"chat/completions", `{"model":"gpt-oss-20b","messages":7}`, ""},
			"response": {"responses", `{"model":"gpt-oss-20b","input":"SAY hello"}`, "cached-tokens=C engine=sglang prompt-tokens=P"},
			"loop":     {"responses", `{"model":"gpt-oss-20b","input":"NOTHINK\nCALL docs.search {\"q\":\"one\"}","tools":[` + stack.DocsTool + `]}`, "cached-tokens=C engine=sglang prompt-tokens=P"},
		} {
			if direct && name == "loop" { // tools need the loopback listener
				continue
			}

			got, reply := explained(r.path, r.body)
			told := stack.LastUsage(reply)
			number := func(path string) string { return told.Get(path + ".0").Raw }
			prompt := number("[prompt_tokens,input_tokens]")
			if prompt == "" {
				prompt, _, _ = strings.Cut(afterLast(got, "prompt-tokens="), " ")
			}

			want := strings.NewReplacer("=P", "="+prompt, "=C", "="+number("[prompt_tokens_details.cached_tokens,input_tokens_details.cached_tokens]")).Replace(r.want)
			if got != want {
				t.Errorf("direct %t, %s: headers %q, want %q, of %s", direct, name, got, want, told)
			}
		}

		for _, call := range d.EngineRequests(t, "explained") {
			if got, ok := call.Header["x-harmony-prompt-tokens"]; ok {
				t.Errorf("the engine gets x-harmony-prompt-tokens: %s", got)
			}
		}
	}

	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.ReplyHeaders = []string{} }})
	resp, _ := d.Chat(t, stack.SGLangModel, "SAY hello", `,"user":"x"`)
	for name := range resp.Header {
		if strings.HasPrefix(name, "X-Harmony-") {
			t.Errorf("a header that is not wanted: %s", name)
		}
	}
}

func afterLast(s, mark string) string {
	if i := strings.LastIndex(s, mark); i >= 0 {
		return s[i+len(mark):]
	}
	return ""
}
