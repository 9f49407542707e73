package engine

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// errorObject returns an error object as the engines' HTTP servers send it.
func errorObject(message string) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":"x"}}`, message)
}

const (
	textUnavailable = "No engine is available at the moment. Try again later."
	textRefused     = "The engine refused the request."
	textFailed      = "The engine failed to answer this request."
)

// readErrorCases are replies of engines and of Envoy with their translation.
var readErrorCases = []struct {
	name   string
	status int
	body   string
	want   apierror.Error
}{
	{
		"vLLM: range", 400, `{"error":{"message":"top_p must be in (0, 1], got 2.0. (parameter=top_p, value=2.0)","type":"BadRequestError","param":"top_p","code":400}}`,
		apierror.Error{Status: 400, Param: "top_p", Message: "The engine refused top_p: top_p must be in (0, 1], got 2.0."},
	},
	{
		"vLLM: type", 400, errorObject("1 validation error:\n  {'type': 'float_parsing', 'loc': 'body.temperature', 'msg': 'Input should be a valid number', 'input': 'hot'}"),
		apierror.Error{Status: 400, Param: "temperature", Message: "The engine refused temperature: Input should be a valid number"},
	},
	{
		"vLLM: prompt echoed", 400, errorObject("2 validation errors:\n  {'type': 'list_type', 'loc': 'body.prompt.0', 'msg': 'Input should be a valid list', 'input': '200006'}\n  {'type': 'x', 'loc': 'body.temperature', 'msg': 'y', 'input': '1'}"),
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: no minimum", 400, errorObject("min_new_tokens=3 is unavailable when skip_tokenizer_init=True (requires tokenizer for eos_token_id)."),
		apierror.Error{Status: 400, Param: "min_tokens", Message: "The engine keeps no minimum, because it runs with --skip-tokenizer-init. Leave min_tokens out."},
	},
	{
		"SGLang: an abort by somebody else", 400, errorObject("Aborted by AbortReq."),
		apierror.Error{Status: 502, Code: "engine_aborted", Message: "The engine aborted the request. Send the request again."},
	},
	{
		"vLLM: the prompt fills the context", 400, `{"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)","type":"BadRequestError","param":"max_tokens","code":400}}`,
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "Your messages are longer than the model's maximum context length. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)"},
	},
	{
		"vLLM: of the generate API's own object", 400, `{"error":{"message":"2 validation errors:\n  {'type': 'is_instance_of', 'loc': 'body.sampling_params', 'msg': 'Input should be an instance of SamplingParams', 'input': '<dict of 4 items>', 'ctx': {'class': 'SamplingParams'}}\n  {'type': 'float_parsing', 'loc': 'body.sampling_params.temperature', 'msg': 'Input should be a valid number, unable to parse string as a number', 'input': 'hot'}","type":"Bad Request","param":"body.sampling_params","code":400}}`,
		apierror.Error{Status: 400, Param: "temperature", Message: "The engine refused temperature: Input should be a valid number, unable to parse string as a number"},
	},
	{"vLLM: token id", 400, errorObject("Token id 300000 is out of vocabulary"), apierror.Error{Status: 400, Message: textRefused}},
	{
		"vLLM: n", 400, errorObject("n must be 1 when using greedy sampling, got 2."),
		apierror.Error{Status: 400, Param: "n", Message: "The engine refused n: n must be 1 when using greedy sampling, got 2."},
	},
	{
		"vLLM: ids in logit_bias", 400, `{"error":{"message":"token_id(s) [300000] in logit_bias contain out-of-vocab token ids. (parameter=logit_bias, value=[300000])","param":"logit_bias"}}`,
		apierror.Error{Status: 400, Param: "logit_bias", Message: "The engine refused logit_bias."},
	},
	{
		"vLLM: too long", 400, errorObject("This model's maximum context length is 4096 tokens. However, your prompt contains 4900 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=4900)"),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens. However, your messages resulted in 4900 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 4900, Max: 4096}},
	},
	{
		"vLLM: too long with output", 400, errorObject("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens. However, your messages resulted in 4000 tokens, and the output has no room for as many as the request asks for. Please reduce the length of the messages or of the completion. (context_length_exceeded: prompt is too long)"},
	},
	{
		"vLLM: max_tokens too large", 400, errorObject("'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 100 input tokens (5000 > 4096 - 100)."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens. However, your messages resulted in 100 tokens, and the output has no room for as many as the request asks for. Please reduce the length of the messages or of the completion. (context_length_exceeded: prompt is too long)"},
	},
	{
		"vLLM: max_tokens beyond the context", 400, errorObject("max_tokens=131000 cannot be greater than max_model_len=8192. Please request fewer output tokens. (parameter=max_tokens, value=131000)"),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 8192 tokens. However, your messages and the completion resulted in more. Please reduce the length of the messages or of the completion. (context_length_exceeded: prompt is too long)"},
	},
	{
		"vLLM: decoder prompt", 400, errorObject("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that max_model_len is no smaller than the number of text tokens."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 5000, Max: 4096}},
	},
	{
		"SGLang: too long", 400, errorObject("The input (140000 tokens) is longer than the model's context length (131072 tokens)."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 131072 tokens. However, your messages resulted in 140000 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 140000, Max: 131072}},
	},
	{
		"SGLang: too long with output", 400, errorObject("Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 140000 tokens: 130000 tokens from the input messages and 10000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 131072 tokens. However, your messages resulted in 130000 tokens, and the output has no room for as many as the request asks for. Please reduce the length of the messages or of the completion. (context_length_exceeded: prompt is too long)"},
	},
	{
		"SGLang: scheduler", 400, errorObject("Input length (140000 tokens) exceeds the maximum allowed length (131066 tokens). Use a shorter input or enable --allow-auto-truncate."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 131066 tokens. However, your messages resulted in 140000 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 140000, Max: 131066}},
	},
	{
		"llama.cpp: too long", 400, `{"error":{"code":400,"message":"request (9100 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9100,"n_ctx":4096}}`,
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens. However, your messages resulted in 9100 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 9100, Max: 4096}},
	},
	{
		"SGLang: range", 400, errorObject("temperature must be non-negative, got -1.0."),
		apierror.Error{Status: 400, Param: "temperature", Message: "The engine refused temperature: temperature must be non-negative, got -1.0."},
	},
	{
		"SGLang: wrong type", 400, `{"error":"invalid type: string \"hot\", expected f64"}`,
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: unknown field", 400, "{\"error\":\"unknown field `nosuch`, expected one of `max_new_tokens`, `stop`, `temperature`\"}",
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: token outside the vocabulary", 400, errorObject("logit_bias must has keys in [0, 201087], got 300000."),
		apierror.Error{Status: 400, Param: "logit_bias", Message: "The engine refused logit_bias."},
	},
	{
		"SGLang: bias of no token", 400, errorObject("invalid literal for int() with base 10: 'x'"),
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: penalty", 400, errorObject("repetition_penalty must be in (0, 2] (1.0 = no penalty), got 3."),
		apierror.Error{Status: 400, Param: "repetition_penalty", Message: "The engine refused repetition_penalty: repetition_penalty must be in (0, 2] (1.0 = no penalty), got 3."},
	},
	{
		"SGLang: minimum", 400, errorObject("min_new_tokens must be in [0, max_new_tokens(60)], got 100."),
		apierror.Error{Status: 400, Param: "min_tokens", Message: "The engine refused min_tokens: min_new_tokens must be in [0, max_new_tokens(60)], got 100."},
	},
	{
		"SGLang: elements of a prompt", 400, `{"object":"error","message":"1 validation error:\n  {'type': 'value_error', 'loc': ('body', 'input_ids'), 'msg': 'Value error, elements must be int or list; got str', 'input': ['nope'], 'ctx': {'error': ValueError('elements must be int or list; got str')}}","type":"Bad Request","param":null,"code":400}`,
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: empty prompt", 400, errorObject("input_ids cannot be empty."),
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: duplicate id", 400, errorObject("Duplicate request ID detected: nope"),
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"SGLang: own names", 400, errorObject("max_new_tokens must be at least 0, got -1."),
		apierror.Error{Status: 400, Param: "max_tokens", Message: "The engine refused max_tokens: max_new_tokens must be at least 0, got -1."},
	},
	{
		"SGLang: pydantic", 400, `{"object":"error","message":"[{'type': 'int_parsing', 'loc': ('body', 'sampling_params', 'top_k'), 'msg': 'Input should be a valid integer', 'input': 'x'}]","type":"Bad Request","code":400}`,
		apierror.Error{Status: 400, Param: "top_k", Message: "The engine refused top_k: Input should be a valid integer"},
	},
	{
		"SGLang: ids echoed", 400, `{"object":"error","message":"[{'type': 'int_parsing', 'loc': ('body', 'input_ids', 'list[int]', 0), 'msg': 'Input should be a valid integer', 'input': '200006'}]","code":400}`,
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"error is a string", 400, `{"error":"temperature must be non-negative, got -1.0."}`,
		apierror.Error{Status: 400, Param: "temperature", Message: "The engine refused temperature: temperature must be non-negative, got -1.0."},
	},
	{
		"FastAPI", 422, `{"detail":[{"type":"float_parsing","loc":["body","temperature"],"msg":"Input should be a valid number","input":"hot"}]}`,
		apierror.Error{Status: 400, Param: "temperature", Message: "The engine refused temperature: Input should be a valid number"},
	},
	{
		"FastAPI: sampling parameters of SGLang", 422, `{"detail":[{"loc":["body","sampling_params","top_p"],"msg":"Input should be less than or equal to 1","input":"hot"}]}`,
		apierror.Error{Status: 400, Param: "top_p", Message: "The engine refused top_p: Input should be less than or equal to 1"},
	},
	{
		"FastAPI: ids", 422, `{"detail":[{"loc":["body","stop_token_ids",0],"msg":"200006 is no id"}]}`,
		apierror.Error{Status: 400, Param: "stop_token_ids", Message: "The engine refused stop_token_ids."},
	},
	{
		"FastAPI: prompt", 422, `{"detail":[{"loc":["body","prompt"],"msg":"Input should be a valid list","input":"nope"}]}`,
		apierror.Error{Status: 400, Message: textRefused},
	},
	{
		"vLLM: parameter in the text only", 400, errorObject("Requested sample logprobs of 30, which is greater than max allowed: 20 (parameter=logprobs, value=30)"),
		apierror.Error{Status: 400, Param: "top_logprobs", Message: "The engine refused top_logprobs."},
	},
	{
		"TensorRT-LLM: too long", 400, errorObject("The sum of prompt length (72417), query length (0) should not exceed max_num_tokens (69632)"),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 69632 tokens. However, your messages resulted in 72417 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 72417, Max: 69632}},
	},
	{
		"TensorRT-LLM: too long with output", 400, errorObject("The sum of prompt length (4000) and query length (0) max_tokens (2048) should not exceed max_seq_len (4096)"),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens. However, your messages resulted in 4000 tokens, and the output has no room for as many as the request asks for. Please reduce the length of the messages or of the completion. (context_length_exceeded: prompt is too long)"},
	},
	{
		"TensorRT-LLM: too long for its executor", 500, errorObject("`default_max_tokens` (-152) must be greater than 0, `default_max_tokens` (-152) = max_seq_len (8192) - `splited_prompt_len` (8344) - `query_token_len` (0)"),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 8192 tokens. However, your messages resulted in 8344 tokens. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)", Overflow: &apierror.Overflow{Tokens: 8344, Max: 8192}},
	},
	{
		"too long without numbers", 400, errorObject("The request exceeds the model's context length."),
		apierror.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "Your messages are longer than the model's maximum context length. Please reduce the length of the messages. (context_length_exceeded: prompt is too long)"},
	},
	{"400 without a body", 400, "", apierror.Error{Status: 400, Message: textRefused}},
	{"401", 401, `{"error":"Unauthorized"}`, apierror.Error{Status: 502, Message: "The engine rejected the filter's credentials. The engine's operator has to configure them."}},
	{"403", 403, "RBAC: access denied", apierror.Error{Status: 502, Message: "The engine rejected the filter's credentials. The engine's operator has to configure them."}},
	{
		"unknown model", 404, "{\"error\":{\"message\":\"The model `nope` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}",
		apierror.Error{Status: 404, Code: "model_not_found", Param: "model", Message: "The engine does not serve this model."},
	},
	{"unknown path", 404, `{"detail":"Not Found"}`, apierror.Error{Status: 502, Message: "The engine does not know the requested path. The engine's operator has to check its kind and route."}},
	{"405", 405, `{"detail":"Method Not Allowed"}`, apierror.Error{Status: 502, Message: textFailed}},
	{"408", 408, "", apierror.Error{Status: 504, Message: "The engine did not answer in time. Try again later."}},
	{"413", 413, "Payload Too Large", apierror.Error{Status: 413, Message: "The request is too large for the engine. Shorten the conversation."}},
	{"429", 429, "local_rate_limited", apierror.Error{Status: 429, Code: "rate_limit_exceeded", Message: "The engine is at capacity. Try again later.", RetryAfter: 3 * time.Second}},
	{"429 without a time", 429, `{"error":"busy"}`, apierror.Error{Status: 429, Code: "rate_limit_exceeded", Message: "The engine is at capacity. Try again later.", RetryAfter: time.Second}},
	{"500", 500, errorObject("EngineCore encountered an issue."), apierror.Error{Status: 502, Message: textFailed}},
	{"502", 502, "<html>nginx</html>", apierror.Error{Status: 502, Message: textFailed}},
	{"503 Envoy", 503, "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure, 10.1.2.3:8000", apierror.Error{Status: 503, Message: textUnavailable, RetryAfter: 3 * time.Second}},
	{"503 no host", 503, "no healthy upstream", apierror.Error{Status: 503, Message: textUnavailable, RetryAfter: time.Second}},
	{"504 Envoy", 504, "upstream request timeout", apierror.Error{Status: 504, Message: "The engine did not answer in time. Try again later."}},
	{"redirect", 302, "", apierror.Error{Status: 502, Message: textFailed}},
	{"teapot", 418, `[]`, apierror.Error{Status: 502, Message: textFailed}},
}

func TestReadError(t *testing.T) {
	for _, c := range readErrorCases {
		t.Run(c.name, func(t *testing.T) {
			header := func(name string) string {
				if name == "retry-after" && c.want.RetryAfter > time.Second {
					return "3"
				}
				return ""
			}
			c.want.Type = apierror.New(c.want.Status, "", "", "").Type
			for _, kind := range Kinds() {
				dialect, _ := ByKind(kind)
				got := *dialect.ReadError(c.status, header, []byte(c.body))
				cause := got.Cause
				got.Cause = nil
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
				for _, secret := range []string{"200006", "300000", "hot", "10.1.2.3", "nope"} {
					if strings.Contains(got.Message, secret) || strings.Contains(cause.Error(), secret) {
						t.Errorf("%s: %q shows in %q or %q", kind, secret, got.Message, cause)
					}
				}
			}
		})
	}
}

// Envoy's configuration names the rate limit of tokens by the error's type.
func TestReadRateLimitOfTokens(t *testing.T) {
	got := readError(429, func(string) string { return "5" }, []byte(`{"error":{"message":"whatever","type":"tokens","code":"rate_limit_exceeded"}}`))
	want := apierror.Error{Status: 429, Type: "tokens", Code: "rate_limit_exceeded", Message: "Rate limit reached on tokens per minute. Try again later.", RetryAfter: 5 * time.Second}
	got.Cause = nil
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestErrorCause checks the text for the operator's log: the status and the
// reason, without words that may be of a prompt.
func TestErrorCause(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"", "engine status 503"},
		{"no healthy upstream", "engine status 503: no healthy upstream"},
		{
			"upstream connect error or disconnect/reset before headers. reset reason: remote connection failure, transport failure reason: delayed connect error: Connection refused",
			"engine status 503: upstream connect error or disconnect/reset before headers. reset reason: remote connection failure, transport failure reason: delayed connect error: Connection refused",
		},
		{"<html>\n<title>nginx</title>", "engine status 503: <html>"},
		{
			"upstream connect error or disconnect/reset before headers. reset reason: remote connection failure, transport failure reason: TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:TLS_error_end",
			"engine status 503: upstream connect error or disconnect/reset before headers. reset reason: remote connection failure, transport failure reason: TLS_error…SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:TLS_error…",
		},
		{`{"error":{"message":"The request queue is full with 17 of 'x'","type":"ServerError"}}`, "engine status 503 ServerError: The request queue is full…"},
		{`{"error":{"message":"my diagnosis is gout, not grammarian","type":"my diagnosis"}}`, "engine status 503: …"},
		{`{"error":{"message":"cannot tokenize my diagnosis is gout: out of memory","type":"Service Unavailable"}}`, "engine status 503 Service Unavailable: …out of memory"},
		{"forgotten gout, top_p", "engine status 503: …top_p"},
		{"reset reason: gout", "engine status 503: reset reason…"},
		{
			`{"error":{"message":"The server had an error while processing your request.","type":"InternalServerError"}}`,
			"engine status 503 InternalServerError: The server had an error while processing your request.",
		},
	} {
		err := readError(503, func(string) string { return "" }, []byte(c.body))
		if err.Cause.Error() != c.want {
			t.Errorf("cause of %q:\n%s, want\n%s", c.body, err.Cause, c.want)
		}
	}
}

// The text itself is there for who may see prompts.
func TestErrorCauseText(t *testing.T) {
	err := readError(400, func(string) string { return "" }, []byte(`{"error":{"message":"best_of must be 1 for gout\ntraceback","type":"BadRequestError"}}`))
	var cause *Cause
	if !errors.As(err, &cause) || cause.Text != "best_of must be 1 for gout" || strings.Contains(cause.Error(), "gout") {
		t.Errorf("%+v, %v", cause, err.Cause)
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": time.Second, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": time.Second, "soon": time.Second, "0": time.Second,
		"99999999999": maxRetryAfter * time.Second, "99999999999999999999": time.Second, "Fri, 20 Nov 2026 21:20:44 GMT": time.Second,
	} {
		if got := readError(503, func(string) string { return value }, nil).RetryAfter; got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

func FuzzReadError(f *testing.F) {
	f.Add(400, `{"error":{"message":"top_p must be in (0, 1], got 2.0.","param":"top_p"}}`)
	f.Add(422, `{"detail":[{"loc":["body","x"],"msg":"y"}]}`)
	f.Add(503, "no healthy upstream")
	f.Fuzz(func(t *testing.T, status int, body string) {
		err := readError(status, func(string) string { return "1" }, []byte(body))
		if err.Status < 400 || err.Status > 599 || err.Message == "" {
			t.Errorf("%+v", err)
		}
		if len(err.Message) > 500 || len(err.Cause.Error()) > 1000 {
			t.Errorf("message of %d bytes, cause of %d", len(err.Message), len(err.Cause.Error()))
		}
	})
}

// TestGrammarFault shows that the client gets the parser's own reason of a grammar that SGLang does
// not compile, by HTTP and gRPC, and nothing of the engine's machine.
func TestGrammarFault(t *testing.T) {
	for said, want := range map[string]string{
		"Failed to compile structural_tag grammar: [15:31:44] /project/cpp/grammar_parser.cc:820: EBNF parser error at line 1, column 13: Expect element, but got \n":     "EBNF parser error at line 1, column 13: Expect element, but got",
		"Failed to compile ebnf grammar: [15:31:48] /project/cpp/regex_converter.cc:83: Regex parsing error at position 5: The parenthesis is not closed.\n":              "Regex parsing error at position 5: The parenthesis is not closed",
		"the engine could not continue the request under its constraint: the scheduler aborted the request: Failed to compile structural_tag grammar: no /usr/lib/x/y.so": "no …",
		"Invalid structured_outputs structural_tag specification. (parameter=structured_outputs)":                                                                         "it does not compile",
		"Failed to compile structural_tag grammar: Grammar compilation failed: ":                                                                                          "Grammar compilation failed",
		"Invalid grammar specification: 'triggers'": "it does not compile",
		"Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not supported when the server is launched with --grammar-backend none": "it runs with --grammar-backend none, or with --skip-tokenizer-init",
		"Failed to compile structural_tag grammar: [15:31:48] /project/cpp/a.cc:1: " + strings.Repeat("é", 400):                                        strings.Repeat("é", 150),
	} {
		event := fmt.Sprintf(`data: {"output_ids":[1],"meta_info":{"finish_reason":{"type":"abort","message":%q,"status_code":400,"err_type":"BadRequestError"},"completion_tokens":1}}`+"\n\n", said)
		_, err := sglang{}.NewDecoder(&Request{N: 1}).Feed([]byte(event), nil)
		trailer := map[string]string{"grpc-status": "3", "grpc-message": url.PathEscape(said)}
		for kind, err := range map[string]*apierror.Error{"HTTP": err, "gRPC": statusError(func(name string) string { return trailer[name] })} {
			var cause *Cause
			if err == nil || err.Status != 400 || err.Message != "The engine does not take the grammar of the output: "+want+"." || !errors.As(err, &cause) || !cause.Grammar {
				t.Errorf("%s: %v: %+v", kind, err, cause)
			}
		}
	}
}
