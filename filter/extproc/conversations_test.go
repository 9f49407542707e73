package extproc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

func TestConversation(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo("/v1/conversations", `{"metadata":{"a":"b"},"items":[{"role":"user","content":"Hi"}]}`)
		status, made := s.answered()
		path := "/v1/conversations/" + gjson.Get(made, "id").String()
		if status != 200 || gjson.Get(made, "object").String() != "conversation" {
			t.Fatalf("status %d, %s", status, made)
		}
		turn := `{"model":"gpt-oss-20b","conversation":"` + gjson.Get(made, "id").String() + `","input":"more"}`

		s.next() // locked while the engine is asked
		s.postTo("/v1/responses", turn)
		s.toEngine()
		first := s.fakeEnvoy
		s.begin()
		s.postTo("/v1/responses", turn)
		if status, body := s.answered(); status != 409 || gjson.Get(body, "error.code").String() != "conversation_locked" {
			t.Errorf("status %d, %s", status, body)
		}
		s.leave()
		s.fakeEnvoy = first
		s.engineAnswers("<|channel|>final<|message|>Hello<|return|>")

		s.next()
		s.get("GET", path+"/items?order=asc")
		if status, body := s.answered(); status != 200 || gjson.Get(body, "data.#.role").Raw != `["user","user","assistant"]` {
			t.Errorf("status %d, %s", status, body)
		}

		s.next() // rejected, so it has no lock
		s.postTo("/v1/responses", strings.Replace(turn, "{", `{"background":true,"store":false,`, 1))
		s.expectLike("immediate 400")
		s.next()
		s.postTo("/v1/responses", turn)
		s.toEngine()

		s.next()
		s.get("GET", path+"/items/none")
		if status, body := s.answered(); status != 404 || gjson.Get(body, "error.code").String() != "item_not_found" {
			t.Errorf("an unknown item: status %d, %s", status, body)
		}

		s.next()
		s.get("DELETE", path)
		if status, body := s.answered(); status != 200 || !gjson.Get(body, "deleted").Bool() {
			t.Errorf("status %d, %s", status, body)
		}

		s.next()
		s.postTo(path+"/items", `{"items":[]}`)
		s.expectLike("immediate 404 The conversation")
	})
}

func TestConversationsWithoutAStoreAreTheUpstreams(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.cfg.Responses.StoreBytes, w.cfg.Responses.RelayUnknown = 0, true }, func(s *scripted) {
		s.postTo("/v1/conversations", `{}`)
		s.expect("request headers", "request body {} END")
	})
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.postTo("/v1/responses/compact", `{"model":"gpt-oss-20b","input":"Hi"}`)
		s.toEngine()
		reply := s.engineAnswers("<|channel|>final<|message|>a greeting<|return|>")
		if reply.Get("object").String() != "response.compaction" || reply.Get("output.#.type").Raw != `["message","compaction"]` {
			t.Fatalf("%s", reply)
		}

		s.next() // it is read with the key of the process
		s.postTo("/v1/responses", `{"model":"gpt-oss-20b","input":[`+reply.Get("output.1").Raw+`]}`)
		if s.toEngine().Get("prompt.#").Int() == 0 {
			t.Error("no prompt")
		}

		s.next()
		s.postTo("/v1/responses/compact", `{"model":"gpt-oss-20b","input":"Hi"}`)
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>analysis<|message|>hm<|end|>")...), true)
		s.expectLike("immediate 502")
	})
}

// The stored items that a request brings in are counted like its body: the request
// is rejected where there is no room for them, and they are returned at its end.
func TestStoredItemsAreInTheBudget(t *testing.T) {
	t.Parallel()
	change := func(w *wiring) { w.cfg.Limits.MaxBodyBytes, w.cfg.Limits.MaxInflightBytes = 3000, 20_000 }
	script(t, change, func(s *scripted) {
		large := strings.Repeat("large ", 400)
		s.postTo("/v1/conversations", `{"items":[{"role":"user","content":"`+large+`"}]}`)
		_, made := s.answered()
		turn := `{"model":"gpt-oss-20b","conversation":"` + gjson.Get(made, "id").String() + `","input":"more"}`

		s.next()
		other := s.occupy(t, 16_000)
		s.postTo("/v1/responses", turn)
		s.expectLike("immediate 503 retry-after=1 Too many requests")
		other.close()

		s.next()
		if n := s.inUse(); n != 0 {
			t.Errorf("%d bytes of the budget are lost", n)
		}
		s.postTo("/v1/responses", turn)
		s.toEngine()
		s.next()
		if n := s.inUse(); n != 0 {
			t.Errorf("%d bytes of the budget are lost", n)
		}
	})
}

// slowStore is a store that takes a while to store a response.
type slowStore struct{ store.Store }

func (s slowStore) Put(ctx context.Context, tenant string, r *store.Response) error {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Put(ctx, tenant, r)
}

// A response that has come to its end extends its conversation though its client
// leaves while it is being stored.
func TestConversationIsExtendedAfterTheClientHasLeft(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.store = slowStore{newStore()} }, func(s *scripted) {
		s.postTo("/v1/conversations", `{"items":[{"role":"user","content":"Hi"}]}`)
		_, made := s.answered()
		id := gjson.Get(made, "id").String()
		s.next()
		s.postTo("/v1/responses", `{"model":"gpt-oss-20b","conversation":"`+id+`","input":"more"}`)
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, true)
		s.expect() // the response is being stored
		s.next()
		s.wait(time.Minute)
		s.get("GET", "/v1/conversations/"+id+"/items?order=asc")
		if status, body := s.answered(); status != 200 || gjson.Get(body, "data.#.role").Raw != `["user","user","assistant"]` {
			t.Errorf("status %d, %s", status, body)
		}
		s.next()
		s.postTo("/v1/responses", `{"model":"gpt-oss-20b","conversation":"`+id+`","input":"more"}`)
		s.toEngine() // it is not locked any more
	})
}
