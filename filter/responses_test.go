package filter

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// next begins another request to the same server.
func (s *script) next() *script {
	s.t.Helper()
	s.x.close(s.now)
	return &script{t: s.t, x: newExchange(s.x.ctx, s.x.s, s.now), now: s.now}
}

const responsesQuestion = `{"model":"gpt-oss-20b","input":"Hi"}`

// respond makes a response and gives its id.
func (s *script) respond(fields ...string) string {
	s.t.Helper()
	s.request(false, append([]string{":method=POST", ":path=/v1/responses", "content-type=application/json"}, fields...)...)
	s.body(responsesQuestion, true)
	s.expectLike("request headers :path=/v1/completions", "request body")
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, true)
	got := s.expectLike("response headers content-type=application/json", "response body {")
	object := strings.TrimSuffix(strings.TrimPrefix(got[1], "response body "), " END")
	if err := responsestest.Object([]byte(object)); err != nil {
		s.t.Fatal(err)
	}
	return gjson.Get(object, "id").String()
}

// answered gives the status and body of an immediate response.
func (s *script) answered() (int, string) {
	s.t.Helper()
	if len(s.x.out) != 1 || s.x.out[0].GetImmediateResponse() == nil {
		s.t.Fatalf("sent %q, not an answer", s.sent())
	}
	i := s.x.out[0].GetImmediateResponse()
	s.sent()
	return int(i.GetStatus().GetCode()), string(i.GetBody())
}

func TestStoredResponse(t *testing.T) {
	s := newScript(t, nil)
	id := s.respond()

	s = s.next()
	s.request(true, ":method=GET", ":path=/v1/responses/"+id+"?include=x")
	if status, body := s.answered(); status != 200 || gjson.Get(body, "id").String() != id || responsestest.Object([]byte(body)) != nil {
		t.Errorf("status %d, %s", status, body)
	}
	s.body("", true)
	s.expect()

	s = s.next()
	s.request(true, ":method=GET", ":path=/v1/responses/"+id+"/input_items?limit=1")
	if status, body := s.answered(); status != 200 || gjson.Get(body, "data.0.content.0.text").String() != "Hi" {
		t.Errorf("status %d, %s", status, body)
	}

	s = s.next()
	s.request(true, ":method=DELETE", ":path=/v1/responses/"+id)
	if status, body := s.answered(); status != 200 || !gjson.Get(body, "deleted").Bool() {
		t.Errorf("status %d, %s", status, body)
	}

	s = s.next() // gone here, so it may be the upstream's
	s.request(true, ":method=GET", ":path=/v1/responses/"+id)
	s.expect("request headers")
	s.answer(false, ":status=404")
	s.answerBody("nothing", true)
	s.expect("response headers", "response body nothing END")

	s = s.next()
	s.request(false, ":method=POST", ":path=/v1/responses/"+id+"/cancel")
	s.body("{}", true)
	s.expect("request headers", "request body {} END")
}

func TestStoredResponsesHaveTenants(t *testing.T) {
	s := newScript(t, func(c *Config) { c.TenantHeader = "x-tenant" })
	id := s.respond("x-tenant=a")
	s = s.next()
	s.request(true, ":method=GET", ":path=/v1/responses/"+id, "x-tenant=b")
	s.expect("request headers")
	s = s.next()
	s.request(true, ":method=GET", ":path=/v1/responses/"+id)
	s.expectLike("immediate 401")
	s = s.next()
	s.request(true, ":method=GET", ":path=/v1/responses/"+id, "x-tenant=a")
	if status, _ := s.answered(); status != 200 {
		t.Errorf("status %d for its own tenant", status)
	}
}

func TestInputTokens(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/v1/responses/input_tokens")
	s.body(responsesQuestion, true)
	status, body := s.answered()
	counted := gjson.Get(body, "input_tokens").Int()

	s = s.next()
	s.request(false, ":method=POST", ":path=/v1/responses")
	s.body(responsesQuestion, true)
	if n := int64(len(s.x.run.call.Engine().Prompt)); status != 200 || n != counted {
		t.Errorf("status %d, %d tokens counted, %d sent", status, counted, n)
	}

	s = s.next()
	s.request(false, ":method=POST", ":path=/v1/responses/input_tokens")
	s.body(`{"model":"llama","input":"Hi"}`, true)
	s.expectLike("request headers", "request body")

	s = s.next()
	s.request(false, ":method=POST", ":path=/v1/responses/input_tokens")
	s.body(`{"model":"gpt-oss"}`, true)
	s.expectLike("immediate 400")
}

func TestResponseOfAClientThatLeftIsCancelled(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/v1/responses")
	s.body(`{"model":"gpt-oss-20b","input":"Hi","stream":true}`, true)
	s.answer(false, ":status=200", sse)
	s.sent()
	s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
	id := ""
	for _, l := range s.sent() {
		if _, data, ok := strings.Cut(l, "data: "); ok {
			data, _, _ = strings.Cut(data, "\n")
			id = gjson.Get(data, "response.id").String()
		}
	}
	s = s.next() // closes the exchange as a reset does
	s.request(true, ":method=GET", ":path=/v1/responses/"+id)
	if status, body := s.answered(); status != 200 || gjson.Get(body, "status").String() != "cancelled" {
		t.Errorf("status %d, %s", status, body)
	}
}

func TestSealKeysAreChecked(t *testing.T) {
	for _, key := range []string{"not base64!", "c2hvcnQ="} {
		cfg := Defaults()
		cfg.Engines = []Engine{{Name: "main", Kind: "vllm"}}
		cfg.Responses.SealKeys = []string{key}
		if _, err := New(cfg, Options{}); err == nil || !strings.Contains(err.Error(), "responses.seal_keys") || strings.Contains(err.Error(), key) {
			t.Errorf("key %q: error %v", key, err)
		}
	}
}
