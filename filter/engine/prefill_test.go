package engine

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func disaggregator(t *testing.T, kind string) Disaggregator {
	t.Helper()
	d, _ := ByKind(kind)
	disaggregator := d.Traits().Disaggregation
	if disaggregator == nil {
		t.Fatalf("%s is not disaggregated", kind)
	}
	return disaggregator
}

// disaggregatedRequest returns a request with parameters that belong to only
// one of the prefill and decode requests.
func disaggregatedRequest() *Request {
	return &Request{
		ID: CallID{Request: "chatcmpl-1"}, Model: "m", Prompt: []harmony.Token{1, 2, 300}, N: 1, MaxTokens: 50,
		StopTokens: []harmony.Token{200007}, Constraint: constraint.Text("x"), Whole: true, Logprobs: true,
	}
}

// TestBootstrapRoom checks that SGLang's prefill and decode requests are the
// same bytes.
func TestBootstrapRoom(t *testing.T) {
	at := &Bootstrap{Host: "prefill-0", Port: 8998, Room: 1<<31 - 1}
	for _, kind := range []string{"sglang", "sglang-grpc"} {
		d := disaggregator(t, kind)
		request, err := d.PrefillRequest(disaggregatedRequest(), at)
		if err != nil {
			t.Fatal(err)
		}
		prefill, err := d.Encode(request)
		if err != nil {
			t.Fatal(err)
		}
		decode, err := d.Encode(d.DecodeRequest(disaggregatedRequest(), at, nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(prefill, decode); diff != "" {
			t.Errorf("%s: the requests differ:\n%s", kind, diff)
		}
		whole, err := d.Encode(disaggregatedRequest())
		if err != nil || strings.Contains(string(whole.Body), "prefill-0") || !strings.Contains(string(prefill.Body), "prefill-0") {
			t.Errorf("%s: %v", kind, err)
		}
		if kind == "sglang" {
			body := gjson.ParseBytes(prefill.Body)
			if body.Get("bootstrap_host").Str != "prefill-0" || body.Get("bootstrap_port").Int() != 8998 || body.Get("bootstrap_room").Int() != 1<<31-1 || !body.Get("stream").Bool() {
				t.Errorf("body %s", body)
			}
		}
		two := disaggregatedRequest()
		two.N = 2
		if _, err := d.PrefillRequest(two, at); err == nil || err.Param != "n" {
			t.Errorf("%s: two choices: %v", kind, err)
		}
	}
}

// TestKVTransfer checks that vLLM's prefill request asks for one token and that
// its decode request has the kv_transfer_params.
func TestKVTransfer(t *testing.T) {
	for _, kind := range []string{"vllm", "vllm-generate"} {
		d := disaggregator(t, kind)
		r := disaggregatedRequest()
		r.N = 3
		prefill, err := d.PrefillRequest(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		wire, err := d.Encode(prefill)
		if err != nil {
			t.Fatal(err)
		}
		body := gjson.ParseBytes(wire.Body)
		params := body
		if kind == "vllm-generate" {
			params = body.Get("sampling_params")
		}
		if params.Get("max_tokens").Int() != 1 || params.Get("min_tokens").Int() != 1 || params.Get("n").Int() != 1 || body.Get("stream").Raw != "false" ||
			params.Get("structured_outputs").Exists() || params.Get("logprobs").Exists() || params.Get("stream_interval").Exists() || body.Get("stream_options").Exists() || body.Get("return_token_ids").Bool() ||
			body.Get("kv_transfer_params").Raw != prefillParams {
			t.Errorf("%s: prefill %s", kind, body)
		}
		if wire, err = d.Encode(d.DecodeRequest(r, nil, &KVTransfer{Params: []byte(`{"do_remote_prefill": true}`)})); err != nil {
			t.Fatal(err)
		}
		body = gjson.ParseBytes(wire.Body)
		if params = body; kind == "vllm-generate" {
			params = body.Get("sampling_params")
		}
		if params.Get("max_tokens").Int() != 50 || params.Get("n").Int() != 3 || !body.Get("stream").Bool() || !params.Get("structured_outputs").Exists() || body.Get("kv_transfer_params").Raw != `{"do_remote_prefill": true}` {
			t.Errorf("%s: decode %s", kind, body)
		}
		if r.Disaggregation != nil || r.MaxTokens != 50 {
			t.Errorf("%s: the request has changed: %+v", kind, r)
		}
	}
}

// complete returns a GenerateResponse of vLLM with kv_transfer_params.
func complete(params string, cached int64, finish ...string) []byte {
	var outer message
	outer.inner(vllmGRPC.complete.field, func(m *message) {
		m.ids(vllmGRPC.complete.ids, []harmony.Token{200005})
		m.integer(vllmGRPC.complete.cached, cached)
		for _, reason := range finish {
			m.b = protowire.AppendString(protowire.AppendTag(m.b, vllmGRPC.complete.finish, protowire.BytesType), reason)
		}
		m.b = protowire.AppendString(protowire.AppendTag(m.b, vllmGRPC.paramsField, protowire.BytesType), params)
	})
	return frame(outer.b)
}

// transferParams is an example of kv_transfer_params.
const transferParams = `{"remote_block_ids":[1,2],"remote_host":"10.0.0.1"}`

// oneTokenReply returns a reply of SGLang's gRPC service with one token.
func oneTokenReply() string {
	var m message
	m.inner(sglangGRPC.chunk.field, func(m *message) { m.ids(1, []harmony.Token{1}) })
	return string(frame(m.b))
}

// prefillReplies are replies to prefill requests with their results.
var prefillReplies = []struct {
	kind, name, body string
	code             string // grpc-status
	want             string // the status of the error, or "cached params"
}{
	{"vllm", "whole", `{"id":"x","choices":[{"index":0,"token_ids":null}],"usage":{"prompt_tokens_details":{"cached_tokens":64}},"kv_transfer_params":` + transferParams + `}`, "", "64 " + transferParams},
	{"vllm", "no usage", `{"kv_transfer_params":` + transferParams + `}`, "", "-1 " + transferParams},
	{"vllm", "no parameters", `{"choices":[]}`, "", "502"},
	{"vllm", "null", `{"choices":[],"kv_transfer_params":null}`, "", "502"},
	{"vllm", "a text", `{"choices":[],"kv_transfer_params":"{}"}`, "", "502"},
	{"vllm", "broken parameters", `{"kv_transfer_params":{1}}`, "", "502"},
	{"vllm", "finished", `{"choices":[{"index":0,"finish_reason":"length"}],"kv_transfer_params":` + transferParams + `}`, "", "-1 " + transferParams},
	{"vllm", "aborted", `{"choices":[{"index":0,"finish_reason":"abort"}],"kv_transfer_params":null}`, "", "aborted"},
	{"vllm", "failed", `{"choices":[{"index":0,"finish_reason":"error","token_ids":[]}]}`, "", "aborted"},
	{"vllm", "an error", `{"error":{"message":"temperature must be non-negative","code":400}}`, "", "400"},
	{"vllm", "cut", `{"choices":[],"kv_transfer_params":` + transferParams, "", "502"},
	{"vllm", "no JSON", "hello", "", "502"},
	{"vllm", "nothing", "", "", "502"},
	{"vllm-grpc", "whole", string(complete(transferParams, 64)), "0", "64 " + transferParams},
	{"vllm-grpc", "no parameters", string(complete("", 64)), "0", "502"},
	{"vllm-grpc", "finished", string(complete(transferParams, 64, "length")), "0", "64 " + transferParams},
	{"vllm-grpc", "aborted", string(complete("", 0, "abort")), "0", "aborted"},
	{"vllm-grpc", "failed", string(complete("", 0, "error")), "0", "aborted"},
	{"vllm-grpc", "nothing", "", "0", "502"},
	{"vllm-grpc", "refused", "", "3", "400"},
	{"vllm-grpc", "unavailable", string(complete(transferParams, 64)), "14", "503"},
	{"vllm-grpc", "garbage", "hello there, this is no gRPC", "0", "502"},
	{"vllm-grpc", "compressed", "\x01\x00\x00\x00\x00", "0", "502"},
	{"sglang", "a token", `data: {"output_ids":[1],"meta_info":{"finish_reason":{"type":"length","length":0},"completion_tokens":1}}` + "\n\ndata: [DONE]\n\n", "", ""},
	{"sglang", "not finished", `data: {"output_ids":[1],"meta_info":{"finish_reason":null,"completion_tokens":1}}` + "\n\n", "", ""},
	{"sglang", "an error", `data: {"error":{"message":"x","code":503}}` + "\n\ndata: [DONE]\n\n", "", "503"},
	{"sglang", "aborted", `data: {"output_ids":[1],"meta_info":{"finish_reason":{"type":"abort","message":"x","status_code":null},"completion_tokens":1}}` + "\n\n", "", "aborted"},
	{"sglang", "garbage", "data: {\n\n", "", "502"},
	{"sglang-grpc", "a token", oneTokenReply(), "0", ""},
	{"sglang-grpc", "an error", "", "13", "502"},
}

// TestPrefillReader reads the replies in pieces of several sizes.
func TestPrefillReader(t *testing.T) {
	for _, tt := range prefillReplies {
		t.Run(tt.kind+"/"+tt.name, func(t *testing.T) {
			for _, piece := range []int{1, 7, len(tt.body) + 1} {
				d := disaggregator(t, tt.kind)
				prefill, err := d.PrefillRequest(&Request{N: 1, Prompt: []harmony.Token{1}, MaxTokens: 9, Logprobs: true}, &Bootstrap{})
				if err != nil {
					t.Fatal(err)
				}
				r := d.NewPrefillReader(prefill)
				body := []byte(tt.body)
				for len(body) > 0 && err == nil {
					n := min(piece, len(body))
					err = r.Feed(body[:n:n])
					body = body[n:]
				}
				var transfer *KVTransfer
				if err == nil {
					trailer := http.Header{"Grpc-Status": {tt.code}}
					transfer, err = r.End(trailer.Get)
				}
				got := ""
				if err != nil && err.Message == prefillAborted().Message {
					got = "aborted"
				} else if err != nil {
					got = strconv.Itoa(err.Status)
				} else if transfer != nil {
					got = fmt.Sprint(transfer.Usage.CachedTokens, " ", string(transfer.Params))
				}
				if got != tt.want {
					t.Errorf("in pieces of %d: %q, want %q (%v)", piece, got, tt.want, err)
				}
			}
		})
	}
}
