package filter

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// asks sends a request with a JSON body.
func (s *script) asks(path, body string) {
	s.request(false, ":method=POST", ":path="+path)
	s.body(body, true)
}

func TestConversation(t *testing.T) {
	s := newScript(t, nil)
	s.asks("/v1/conversations", `{"metadata":{"a":"b"},"items":[{"role":"user","content":"Hi"}]}`)
	status, made := s.answered()
	path := "/v1/conversations/" + gjson.Get(made, "id").String()
	if status != 200 || gjson.Get(made, "object").String() != "conversation" {
		t.Fatalf("status %d, %s", status, made)
	}
	turn := `{"model":"gpt-oss-20b","conversation":"` + gjson.Get(made, "id").String() + `","input":"more"}`

	s = s.next() // held while the engine is asked
	s.asks("/v1/responses", turn)
	s.sent()
	first := s
	s = &script{t: s.t, x: newExchange(s.x.ctx, s.x.s, s.now), now: s.now}
	s.asks("/v1/responses", turn)
	if status, body := s.answered(); status != 409 || gjson.Get(body, "error.code").String() != "conversation_locked" {
		t.Errorf("status %d, %s", status, body)
	}
	first.answer(false, ":status=200", sse)
	first.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...), true)
	first.sent()

	s = first.next()
	s.request(true, ":method=GET", ":path="+path+"/items?order=asc")
	if status, body := s.answered(); status != 200 || gjson.Get(body, "data.#.role").Raw != `["user","user","assistant"]` {
		t.Errorf("status %d, %s", status, body)
	}

	s = s.next() // refused, so it holds nothing
	s.asks("/v1/responses", strings.Replace(turn, "{", `{"background":true,`, 1))
	s.expectLike("immediate 400")
	s.x.s.holds.Wait()
	s = s.next()
	s.asks("/v1/responses", turn)
	s.expectLike("request headers :path=/v1/completions", "request body")

	s = s.next()
	s.request(true, ":method=GET", ":path="+path+"/items/none")
	if status, body := s.answered(); status != 404 || gjson.Get(body, "error.code").String() != "item_not_found" {
		t.Errorf("an unknown item: status %d, %s", status, body)
	}

	s = s.next()
	s.request(true, ":method=DELETE", ":path="+path)
	if status, body := s.answered(); status != 200 || !gjson.Get(body, "deleted").Bool() {
		t.Errorf("status %d, %s", status, body)
	}

	s = s.next() // gone here, so it may be the upstream's
	s.asks(path+"/items", `{"items":[]}`)
	s.expect("request headers", `request body {"items":[]} END`)
}

func TestConversationsWithoutAStoreAreTheUpstreams(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Responses.StoreBytes = 0 })
	s.asks("/v1/conversations", `{}`)
	s.expect("request headers", "request body {} END")
}

func TestCompaction(t *testing.T) {
	s := newScript(t, nil)
	s.asks("/v1/responses/compact", `{"model":"gpt-oss-20b","input":"Hi"}`)
	s.sent()
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens("<|channel|>final<|message|>a greeting<|return|>")...), true)
	reply := strings.Join(s.sent(), "\n")
	_, reply, _ = strings.Cut(reply, "response body ")
	if gjson.Get(reply, "object").String() != "response.compaction" || gjson.Get(reply, "output.#.type").Raw != `["message","compaction"]` {
		t.Fatalf("%s", reply)
	}

	s = s.next() // it is read again with the key of the process
	s.asks("/v1/responses", `{"model":"gpt-oss-20b","input":[`+gjson.Get(reply, "output.1").Raw+`]}`)
	if prompt := s.x.run.call.Engine().Prompt; len(prompt) == 0 {
		t.Error("no prompt")
	}

	s = s.next()
	s.asks("/v1/responses/compact", `{"model":"gpt-oss-20b","input":"Hi"}`)
	s.sent()
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens("<|channel|>analysis<|message|>hm<|end|>")...), true)
	s.expectLike("immediate 502")
}

// TestStoredItemsAreInTheBudget counts what a request reads of the store like
// its body: it is refused where there is no room, and given back at the end.
func TestStoredItemsAreInTheBudget(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 3000, 5000 })
	large := strings.Repeat("large ", 400)
	s.asks("/v1/conversations", `{"items":[{"role":"user","content":"`+large+`"}]}`)
	_, made := s.answered()
	turn := `{"model":"gpt-oss-20b","conversation":"` + gjson.Get(made, "id").String() + `","input":"more"}`
	budget := &s.x.s.budget

	if !budget.take(3000) {
		t.Fatal("the budget is not empty")
	}
	s = s.next()
	s.asks("/v1/responses", turn)
	s.expectLike("immediate 503 retry-after=1 too many requests")
	budget.take(-3000)
	s.x.close(s.now)
	s.x.s.holds.Wait()
	if used := budget.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are lost", used)
	}

	s = s.next()
	s.asks("/v1/responses", turn)
	s.expectLike("request headers :path=/v1/completions", "request body")
	s.x.close(s.now)
	if used := budget.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are lost", used)
	}
}
