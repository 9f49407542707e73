package extproc

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

const responsesQuestion = `{"model":"gpt-oss-20b","input":"Hi"}`

// postTo sends a POST with a body.
func (s *scripted) postTo(path, body string, fields ...string) {
	s.t.Helper()
	s.request(false, append([]string{":method=POST", ":path=" + path, "content-type=application/json", "x-request-id=abc"}, fields...)...)
	s.body(body, true)
}

// get sends a request without a body.
func (s *scripted) get(method, path string, fields ...string) {
	s.t.Helper()
	s.request(true, append([]string{":method=" + method, ":path=" + path}, fields...)...)
}

// engineAnswers sends the engine's answer, and returns the object that the client
// gets.
func (s *scripted) engineAnswers(output string) gjson.Result {
	s.t.Helper()
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens(output)...)+usageEvent+doneEvent, true)
	got := s.expectLike("local headers :status=200 content-type=application/json", "local body {")
	return gjson.Parse(strings.TrimSuffix(strings.TrimPrefix(got[1], "local body "), " END"))
}

// respond makes a response, and returns its id.
func (s *scripted) respond(fields ...string) string {
	s.t.Helper()
	s.postTo("/v1/responses", responsesQuestion, fields...)
	s.toEngine()
	object := s.engineAnswers("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>")
	if err := responsestest.Object([]byte(object.Raw)); err != nil {
		s.t.Fatal(err)
	}
	return object.Get("id").String()
}

func TestStoredResponse(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		id := s.respond()

		s.next()
		s.get("GET", "/v1/responses/"+id+"?include=x")
		if status, body := s.answered(); status != 200 || gjson.Get(body, "id").String() != id || responsestest.Object([]byte(body)) != nil {
			t.Errorf("status %d, %s", status, body)
		}
		s.body("", true)
		s.expect()

		s.next()
		s.get("GET", "/v1/responses/"+id+"/input_items?limit=1")
		if status, body := s.answered(); status != 200 || gjson.Get(body, "data.0.content.0.text").String() != "Hi" {
			t.Errorf("status %d, %s", status, body)
		}

		s.next()
		s.get("DELETE", "/v1/responses/"+id)
		if status, body := s.answered(); status != 200 || !gjson.Get(body, "deleted").Bool() {
			t.Errorf("status %d, %s", status, body)
		}

		for _, gone := range []string{"GET", "DELETE"} {
			s.next()
			s.get(gone, "/v1/responses/"+id)
			s.expectLike("immediate 404 The response")
		}
		s.next()
		s.postTo("/v1/responses/"+id+"/cancel", "{}")
		s.expectLike("immediate 404 The response")
	})
}

func TestStoredResponsesHaveTenants(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.cfg.TenantHeader = "x-tenant" }, func(s *scripted) {
		id := s.respond("x-tenant=a")
		s.next()
		s.get("GET", "/v1/responses/"+id, "x-tenant=b")
		s.expectLike("immediate 404")
		s.next()
		s.get("GET", "/v1/responses/"+id)
		s.expectLike("immediate 401")
		s.next()
		s.get("GET", "/v1/responses/"+id, "x-tenant=a")
		if status, _ := s.answered(); status != 200 {
			t.Errorf("status %d for its own tenant", status)
		}
	})
}

func TestInputTokens(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo("/v1/responses/input_tokens", responsesQuestion)
		status, body := s.answered()
		counted := gjson.Get(body, "input_tokens").Int()

		s.next()
		s.postTo("/v1/responses", responsesQuestion)
		if n := s.toEngine().Get("prompt.#").Int(); status != 200 || n != counted || n == 0 {
			t.Errorf("status %d, %d tokens counted, %d sent", status, counted, n)
		}

		s.next()
		s.postTo("/v1/responses/input_tokens", `{"model":"llama","input":"Hi"}`)
		s.expectLike("request headers", "request body")

		s.next()
		s.postTo("/v1/responses/input_tokens", `{"model":"gpt-oss"}`)
		s.expectLike("immediate 400")
	})
}

// TestReasoningEvents shows that two clients of one filter get the names of events that each knows.
func TestReasoningEvents(t *testing.T) {
	t.Parallel()
	change := func(w *wiring) {
		w.cfg.Responses.ReasoningEventsFor = []config.ReasoningEvents{{
			// Of "open".
			Key: "2348f998744212575d85959674f9607ab26f67708a917157472832386337c904", Events: turn.EventsReasoning,
		}}
	}
	script(t, change, func(s *scripted) {
		for key, want := range map[string]string{"open": "response.reasoning.delta", "openai": "response.reasoning_text.delta"} {
			s.postTo("/v1/responses", `{"model":"gpt-oss-20b","input":"Hi","stream":true}`, "authorization=Bearer "+key)
			s.toEngine()
			s.answer(false, ":status=200", sse)
			s.answerBody(event("stop", tokens("<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, true)
			if got := strings.Join(s.sent(), "\n"); !strings.Contains(got, "event: "+want+"\n") {
				t.Errorf("%s: no %s in\n%s", key, want, got)
			}
			s.next()
		}
	})
}

func TestResponseOfAClientThatLeftIsCanceled(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo("/v1/responses", `{"model":"gpt-oss-20b","input":"Hi","stream":true}`)
		s.toEngine()
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
		s.next()
		s.get("GET", "/v1/responses/"+id)
		if status, body := s.answered(); status != 200 || gjson.Get(body, "status").String() != "cancelled" {
			t.Errorf("status %d, %s", status, body)
		}
	})
}

// Both APIs render a request without an engine, and leave other models to the
// upstream.
func TestRender(t *testing.T) {
	t.Parallel()
	for path, question := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"user","content":"Hi"}]`,
		"/v1/responses":        `"input":"Hi"`,
	} {
		script(t, nil, func(s *scripted) {
			s.postTo(path+"/render", `{"model":"gpt-oss-20b",`+question+`}`)
			status, body := s.answered()
			rendered := gjson.Get(body, "token_count").Int()

			s.next()
			s.postTo(path, `{"model":"gpt-oss-20b",`+question+`}`)
			if n := s.toEngine().Get("prompt.#").Int(); status != 200 || n != rendered || n == 0 {
				t.Errorf("%s: status %d, %d tokens rendered, %d sent", path, status, rendered, n)
			}

			s.next()
			s.postTo(path+"/render", `{"model":"llama",`+question+`}`)
			s.expectLike("request headers", "request body")
		})
	}
}
