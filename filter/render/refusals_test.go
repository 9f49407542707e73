package render

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	const chat, responses, messages = "/v1/chat/completions", "/v1/responses", "/v1/messages"
	reply := generated(apitest.Said(said))
	derender := func(members string) string { return `{"chat_request":` + requests[chat] + `,` + members + `}` }
	ofRequest := func(path, request string) string {
		return `{"generate_response":` + reply + `,"` + kindOf(path).request + `":` + request + `}`
	}
	for _, c := range []struct{ name, path, body, param string }{
		{"no JSON", chat + "/derender", `{`, ""},
		{"no tokens", chat + "/derender", derender(`"stream":false`), "generate_response"},
		{"two answers", chat + "/derender", derender(`"generate_response":` + reply + `,"generate_chunk":` + reply), "generate_chunk"},
		{"no request", chat + "/derender", `{"generate_response":` + reply + `}`, "chat_request"},
		{"the request of another API", chat + "/derender", `{"responses_request":{},"generate_response":` + reply + `}`, "chat_request"},
		{"a request that is no object", chat + "/derender", ofRequest(chat, `[]`), "chat_request"},
		{"a chunk without stream", chat + "/derender", derender(`"generate_chunk":` + reply), "stream"},
		{"an answer that is no object", chat + "/derender", derender(`"generate_response":[]`), "generate_response.choices"},
		{"an answer without choices", chat + "/derender", derender(`"generate_response":{}`), "generate_response.choices"},
		{"no choice", chat + "/derender", derender(`"generate_response":{"choices":[]}`), "generate_response.choices"},
		{"a choice too many", chat + "/derender", derender(`"generate_response":` + generated(apitest.Said("a"), apitest.Said("b"))), "generate_response.choices"},
		{"another choice", chat + "/derender", derender(`"generate_response":` + strings.Replace(reply, `"index":0`, `"index":1`, 1)), "generate_response"},
		{"no token ids", chat + "/derender", derender(`"generate_response":{"choices":[{"index":0,"text":"Hi","finish_reason":"stop"}]}`), "generate_response"},
		{"token ids that are texts", chat + "/derender", derender(`"generate_response":{"choices":[{"index":0,"token_ids":["a"],"finish_reason":"stop"}]}`), "generate_response"},
		{"an aborted answer", chat + "/derender", derender(`"generate_response":` + strings.Replace(reply, `"stop"`, `"abort"`, 1)), "generate_response.choices"},
		{"an answer that is an error", chat + "/derender", derender(`"generate_response":{"choices":[{"index":0,"token_ids":[1],"finish_reason":"error"}]}`), "generate_response"},
		{"log probabilities that are missing", chat + "/derender", ofRequest(chat, apitest.With(t, requests[chat], "logprobs", true)), "generate_response"},
		{"two choices in a chunk", chat + "/derender", derender(`"stream":true,"generate_chunk":` + generated(apitest.Said("a"), apitest.Said("b"))), "generate_chunk.choices"},
		{"a choice beyond all bounds", chat + "/derender", derender(`"stream":true,"generate_chunk":` + strings.Replace(reply, `"index":0`, `"index":99999`, 1)), "generate_chunk.choices"},
		{"a state that is no object", chat + "/derender", derender(`"stream":true,"stream_state":7,"generate_chunk":` + reply), "stream_state"},
		{"a state with tokens of no chunk", chat + "/derender", derender(`"stream":true,"stream_state":{"output_token_ids":[1],"output_chunk_lens":[]},"generate_chunk":` + reply), "stream_state"},
		{"a state with an empty chunk", chat + "/derender", derender(`"stream":true,"stream_state":{"output_token_ids":[1],"output_chunk_lens":[1,0]},"generate_chunk":` + reply), "stream_state.output_chunk_lens[1]"},
		{"a state with a member that it does not have", chat + "/derender", derender(`"stream":true,"stream_state":{"parser":{}},"generate_chunk":` + reply), "stream_state.parser"},
		{"a choice without tokens", chat + "/derender", derender(`"generate_response":{"choices":[{"index":0,"token_ids":[],"finish_reason":"stop"}]}`), "generate_response.choices[0].token_ids"},
		{"a state that has ended oddly", chat + "/derender", derender(`"stream":true,"stream_state":{"finish_reason":"abort"},"generate_chunk":` + reply), "stream_state.finish_reason"},
		{"a token outside the vocabulary", chat + "/derender", derender(`"stream":true,"stream_state":{"output_token_ids":[201089],"output_chunk_lens":[1]},"generate_chunk":` + reply), "stream_state.output_token_ids[0]"},
		{"too long a prompt", chat + "/derender", derender(fmt.Sprintf(`"prompt_tokens":%d,"generate_response":%s`, turn.MaxRendered+1, reply)), "prompt_tokens"},
		{"a field of the request", chat + "/derender", ofRequest(chat, `{"model":"m","messages":[{"role":"user","content":5}]}`), "chat_request.messages[0].content"},
		{"a response before", responses + "/derender", ofRequest(responses, `{"model":"m","input":"a","previous_response_id":"resp_1"}`), "responses_request.previous_response_id"},
		{"a response before, rendered", responses + "/render", `{"model":"m","input":"a","previous_response_id":"resp_1"}`, "previous_response_id"},
		{"a conversation", responses + "/render", `{"model":"m","input":"a","conversation":"conv_1"}`, "conversation"},
		{"a response in the background", responses + "/derender", ofRequest(responses, `{"model":"m","input":"a","background":true}`), "responses_request.background"},
		{"tools of a server", responses + "/derender", ofRequest(responses, `{"model":"m","input":"a","tools":[{"type":"mcp","server_label":"a","server_url":"http://a"}]}`), "responses_request.tools[0].type"},
		{"no max_tokens", messages + "/derender", ofRequest(messages, `{"model":"m","messages":[{"role":"user","content":5}]}`), "messages_request.messages[0].content"},
		{"nothing to tokenize", TokenizePath, `{}`, "prompt"},
		{"a prompt that is no text", TokenizePath, `{"prompt":["a"]}`, "prompt"},
		{"a prompt and messages", TokenizePath, `{"prompt":"a","messages":[]}`, "messages"},
		{"no messages", TokenizePath, `{"messages":[]}`, "messages"},
		{"a chat template", TokenizePath, `{"messages":[{"role":"user","content":"a"}],"chat_template":"x"}`, "chat_template"},
		{"a text that is too long", TokenizePath, `{"prompt":"` + strings.Repeat(" a", turn.MaxRendered+1) + `"}`, "prompt"},
		{"nothing to detokenize", DetokenizePath, `{}`, "tokens"},
		{"tokens that are a text", DetokenizePath, `{"tokens":"a"}`, "tokens"},
		{"a token below the vocabulary", DetokenizePath, `{"tokens":[-1]}`, "tokens[0]"},
		{"a token beyond the vocabulary", DetokenizePath, `{"tokens":[5,201089]}`, "tokens[1]"},
		{"too many tokens", DetokenizePath, `{"tokens":[1` + strings.Repeat(",1", turn.MaxRendered) + `]}`, "tokens"},
	} {
		got, err := answer(t, service, c.path, c.body, apitest.NewContext())
		if err == nil || err.Status != 400 || err.Param != c.param || len(err.Message) < 20 {
			t.Errorf("%s: param %q, error %v, answer %.100s", c.name, c.param, err, got)
		}
	}
}

// TestBounds shows that outputs are no longer than the model's context, in one piece
// and with what the state has.
func TestBounds(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	rc := apitest.NewContext()
	rc.Model.ContextLength = 1000
	long := apitest.Said(strings.Repeat(" a", 1001))
	if _, err := answer(t, service, path+derenderSuffix, whole(path, requests[path], []apitest.Output{long}, ""), rc); err == nil || err.Param != "generate_response.choices" {
		t.Errorf("a long answer: %v", err)
	}
	ids := "[1" + strings.Repeat(",1", 998) + "]"
	body := `{"stream":true,"chat_request":` + requests[path] + `,"stream_state":{"output_token_ids":` + ids + `,"output_chunk_lens":[999]},"generate_chunk":`
	if _, err := answer(t, service, path+derenderSuffix, body+generated(apitest.Said(" a"))+`}`, rc); err != nil {
		t.Errorf("a full context: %v", err)
	}
	if _, err := answer(t, service, path+derenderSuffix, body+generated(apitest.Said(" a a"))+`}`, rc); err == nil || err.Param != "generate_chunk.choices" {
		t.Errorf("more than a context: %v", err)
	}
	if _, err := answer(t, service, path+derenderSuffix, strings.Replace(body, "[999]", "[1001]", 1)+generated(apitest.Said(" a"))+`}`, rc); err == nil || err.Param != "stream_state.output_chunk_lens[0]" {
		t.Errorf("a chunk of the state that is too long: %v", err)
	}
}

// TestReserve shows that the copy of a request counts in the budget.
func TestReserve(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	for endpoint, body := range map[string]string{
		path + derenderSuffix: whole(path, requests[path], []apitest.Output{apitest.Said(said)}, ""),
		TokenizePath:          requests[path],
	} {
		rc := apitest.NewContext()
		reserved := 0
		rc.Reserve = reserveAll(&reserved)
		if _, err := answer(t, service, endpoint, body, rc); err != nil || reserved < len(requests[path])/2 {
			t.Errorf("%s: %d bytes reserved, error %v", endpoint, reserved, err)
		}
	}
}

// FuzzService sends arbitrary bodies to all endpoints. An answer is valid JSON or a
// stream, an error is the request's fault.
func FuzzService(f *testing.F) {
	for path, request := range requests {
		f.Add(path+derenderSuffix, whole(path, request, []apitest.Output{apitest.Said(thought + call)}, ""))
		f.Add(path+derenderSuffix, whole(path, request, []apitest.Output{apitest.Said(thought + said)}, `,"stream":true`))
		f.Add(path+derenderSuffix, `{"stream":true,"generate_chunk":`+generated(apitest.Said(call))+`,"stream_state":{"output_token_ids":[200005,35644,200008],"output_chunk_lens":[1,2]},"`+kindOf(path).request+`":`+request+`}`)
	}
	f.Add(TokenizePath, requests["/v1/chat/completions"])
	f.Add(TokenizePath, `{"prompt":"a é","return_token_strs":true}`)
	f.Add(DetokenizePath, `{"tokens":[1,200006]}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		for _, e := range service {
			if e.Pattern == path {
				if _, err := answer(t, service, path, body, apitest.NewContext()); err != nil && err.Status != 400 {
					t.Fatalf("%s of %s: %v", path, body, err)
				}
			}
		}
	})
}

// TestLate shows that a long text is not tokenized to its end when nobody waits.
func TestLate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, body := range []string{`{"prompt":"` + strings.Repeat(" a", 100_000) + `"}`, `{"messages":[{"role":"user","content":"` + strings.Repeat(" a", 100_000) + `"}]}`} {
		if err := askLate(ctx, body); err == nil || err.Status != 503 {
			t.Errorf("%v", err)
		}
	}
}
