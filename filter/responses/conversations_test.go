package responses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// ask asks for something about conversations and checks the answer.
func (s *server) ask(method, path, body string) (gjson.Result, *apierror.Error) {
	b, err := s.serve(method, path, []byte(body), s.rc)
	if err != nil {
		return gjson.Result{}, err
	}
	if err := checkAnswer(b); err != nil {
		return gjson.Result{}, apierror.New(http.StatusInternalServerError, "", "", "%v: %s", err, b)
	}
	return gjson.ParseBytes(b), nil
}

// elsewhere reports whether an answer may be another service's.
func (s *server) elsewhere(method, path, body string) bool {
	return s.outcome(method, path, []byte(body), s.rc).Elsewhere != nil
}

// checkAnswer checks an answer about conversations.
func checkAnswer(b []byte) error {
	switch gjson.GetBytes(b, "object").Str {
	case "conversation":
		return responsestest.Conversation(b)
	case "list":
		return responsestest.Items(b)
	case "conversation.deleted":
		if !json.Valid(b) || !gjson.GetBytes(b, "deleted").Bool() || gjson.GetBytes(b, "id").Str == "" {
			return errors.New("not a deletion")
		}
		return nil
	}
	return responsestest.Item(b)
}

func (s *server) must(t *testing.T, method, path, body string) gjson.Result {
	t.Helper()
	got, err := s.ask(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// conversation makes a conversation, and returns its path.
func (s *server) conversation(t *testing.T, body string) (id, path string) {
	t.Helper()
	id = s.must(t, "POST", stored.ConversationsPath, body).Get("id").Str
	return id, stored.ConversationsPath + "/" + id
}

// items is what a conversation has, in order.
func (s *server) items(t *testing.T, path string) (ids []string) {
	t.Helper()
	for _, id := range s.must(t, "GET", path+"/items?order=asc&limit=100", "").Get("data.#.id").Array() {
		ids = append(ids, id.Str)
	}
	return ids
}

func TestConversation(t *testing.T) {
	t.Parallel()
	s := newServer()
	for _, body := range []string{"", "{}", `{"items":null,"metadata":null}`, `{"items":[]}`} {
		made := s.must(t, "POST", stored.ConversationsPath, body)
		want := `{"id":"` + made.Get("id").Str + `","object":"conversation","created_at":1795262400,"metadata":{}}`
		if made.Raw != want || !strings.HasPrefix(made.Get("id").Str, "conv_") {
			t.Errorf("%s: %s", body, made.Raw)
		}
	}
	made := s.must(t, "POST", stored.ConversationsPath, `{"metadata":{"a":"b"},"items":[{"role":"user","content":"one"}]}`)
	path := stored.ConversationsPath + "/" + made.Get("id").Str
	if got := s.must(t, "GET", path, ""); got.Raw != made.Raw || got.Get("metadata.a").Str != "b" {
		t.Errorf("GET: %s", got.Raw)
	}
	if got := s.must(t, "POST", path, `{"metadata":{"c":"d"}}`); got.Get("metadata").Raw != `{"c":"d"}` || got.Get("created_at").Raw != made.Get("created_at").Raw {
		t.Errorf("update: %s", got.Raw)
	}
	if got := s.must(t, "POST", path, `{"metadata":null}`); got.Get("metadata").Raw != `{}` {
		t.Errorf("update: %s", got.Raw)
	}
	if got := s.must(t, "GET", path, ""); got.Get("metadata").Raw != `{}` {
		t.Errorf("GET after an update: %s", got.Raw)
	}
	if n := len(s.items(t, path)); n != 1 {
		t.Errorf("%d items", n)
	}
	if got := s.must(t, "DELETE", path, ""); got.Raw != `{"id":"`+made.Get("id").Str+`","object":"conversation.deleted","deleted":true}` {
		t.Errorf("DELETE: %s", got.Raw)
	}
	for _, r := range []struct{ method, path, body string }{{"GET", path, ""}, {"DELETE", path, ""}, {"POST", path, `{"metadata":{}}`}, {"GET", path + "/items", ""}} {
		if _, err := s.ask(r.method, r.path, r.body); err == nil || err.Status != 404 || err.Code != "conversation_not_found" || !s.elsewhere(r.method, r.path, r.body) {
			t.Errorf("%s of a deleted conversation: %v", r.method, err)
		}
	}
}

func TestConversationItems(t *testing.T) {
	t.Parallel()
	s := newServer()
	_, path := s.conversation(t, `{"items":[{"role":"user","id":"a","content":"one"}]}`)
	added := s.must(t, "POST", path+"/items?include[]=x", `{"items":[{"role":"assistant","id":"b","content":"two"},{"type":"reasoning","id":"c","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},
		{"type":"function_call","id":"d","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":"ok"},{"role":"user","content":"three"}]}`)
	ids := s.items(t, path)
	if len(ids) != 6 || strings.Join(ids[:4], " ") != "a b c d" || !strings.HasPrefix(ids[4], "fco_") || !strings.HasPrefix(ids[5], "msg_") {
		t.Fatalf("ids %q", ids)
	}
	if added.Get("data.#").Int() != 5 || added.Get("has_more").Bool() || added.Get("data.0.content.0.type").Str != "output_text" {
		t.Errorf("added: %s", added.Raw)
	}
	for query, want := range map[string]string{
		"":                           ids[5] + " " + ids[4] + " d c b a false",
		"?order=asc&limit=2":         "a b true",
		"?order=asc&limit=2&after=b": "c d true",
		"?limit=2&after=c":           "b a false",
		"?order=asc&after=" + ids[5]: "false",
	} {
		got := s.must(t, "GET", path+"/items"+query, "")
		var list []string
		for _, id := range got.Get("data.#.id").Array() {
			list = append(list, id.Str)
		}
		if got := strings.Join(append(list, got.Get("has_more").Raw), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := s.must(t, "GET", path+"/items/a", ""); got.Raw != `{"type":"message","id":"a","status":"completed","role":"user","content":[{"type":"input_text","text":"one"}]}` {
		t.Errorf("an item: %s", got.Raw)
	}
	if got := s.must(t, "DELETE", path+"/items/c", ""); got.Raw != s.must(t, "GET", path, "").Raw {
		t.Errorf("the answer to an item's deletion is %s", got.Raw)
	}
	if got := s.items(t, path); len(got) != 5 || got[2] != "d" {
		t.Errorf("after a deletion: %q", got)
	}
	for _, r := range []struct{ method, path string }{{"GET", path + "/items/c"}, {"DELETE", path + "/items/c"}} {
		if _, err := s.ask(r.method, r.path, ""); err == nil || err.Status != 404 || err.Code != "item_not_found" || s.elsewhere(r.method, r.path, "") {
			t.Errorf("%s of a deleted item: %v", r.method, err)
		}
	}
}

func TestConversationRefusals(t *testing.T) {
	t.Parallel()
	s := newServer()
	_, path := s.conversation(t, `{"items":[{"role":"user","id":"a","content":"one"}]}`)
	user := `{"role":"user","content":"x"}`
	for _, c := range []struct {
		request, body string
		status        int
		param         string
	}{
		{"POST " + stored.ConversationsPath, `[]`, 400, ""},
		{"POST " + stored.ConversationsPath, `{"items":"x"}`, 400, "items"},
		{"POST " + stored.ConversationsPath, `{"items":[` + strings.Repeat(user+",", 20) + user + `]}`, 400, "items"},
		{"POST " + stored.ConversationsPath, `{"items":[{"content":"x"}]}`, 400, "items[0].type"},
		{"POST " + stored.ConversationsPath, `{"items":[` + user + `,{"role":"user"}]}`, 400, "items[1].content"},
		{"POST " + stored.ConversationsPath, `{"items":[{"type":"compaction_trigger"}]}`, 400, "items"},
		{"POST " + stored.ConversationsPath, `{"items":[{"type":"item_reference","id":"none"}]}`, 404, "items[0].id"},
		{"POST " + stored.ConversationsPath, `{"items":[{"role":"user","id":"b","content":""},{"role":"user","id":"b","content":""}]}`, 400, "items"},
		{"POST " + stored.ConversationsPath, `{"metadata":{"a":1}}`, 400, "metadata"},
		{"POST " + stored.ConversationsPath, `{"metadata":{},"metadata":{}}`, 400, "metadata"},
		{"POST " + path, `{}`, 400, "metadata"},
		{"POST " + path + "/items", `{}`, 400, "items"},
		{"POST " + path + "/items", `{"items":[` + user + `,{"role":"user","id":"a","content":"again"}]}`, 400, "items"},
		{"GET " + path + "/items?limit=101", "", 400, "limit"},
		{"GET " + path + "/items?order=up", "", 400, "order"},
		{"GET " + path + "/items?after=none", "", 400, "after"},
		{"GET " + path + "x/items?after=none", "", 404, "conversation_id"},
		{"POST " + path + "x/items", `{"items":[]}`, 404, "conversation_id"},
		{"GET " + path + "x/items/a", "", 404, "conversation_id"},
		{"DELETE " + path + "x/items/a", "", 404, "conversation_id"},
		{"DELETE " + path + "/items/none", "", 404, "item_id"},
	} {
		method, url, _ := strings.Cut(c.request, " ")
		if _, err := s.ask(method, url, c.body); err == nil || err.Status != c.status || err.Param != c.param {
			t.Errorf("%s %.60s: %v, want %d, param %q", c.request, c.body, err, c.status, c.param)
		}
	}
	if got := s.items(t, path); len(got) != 1 {
		t.Errorf("refused items were added: %q", got)
	}
	s.Store = nil
	if !s.elsewhere("POST", stored.ConversationsPath, `{}`) {
		t.Error("without a store a conversation is nobody else's")
	}
}

// TestConversationTenants shows that a tenant's conversations do not exist for
// another.
func TestConversationTenants(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{"items":[{"role":"user","id":"a","content":"one"}]}`)
	s.rc.Tenant = "b"
	for _, r := range []struct{ method, path, body string }{
		{"GET", path, ""},
		{"POST", path, `{"metadata":{}}`},
		{"DELETE", path, ""},
		{"GET", path + "/items", ""},
		{"POST", path + "/items", `{"items":[{"role":"user","content":"x"}]}`},
		{"GET", path + "/items/a", ""},
		{"DELETE", path + "/items/a", ""},
	} {
		if _, err := s.ask(r.method, r.path, r.body); err == nil || err.Status != 404 || err.Code != "conversation_not_found" {
			t.Errorf("%s %s: %v", r.method, r.path, err)
		}
	}
	if err := s.fails(t, `,"conversation":"`+id+`","input":"x"`); err.Status != 404 || err.Code != "conversation_not_found" || err.Param != "conversation" {
		t.Errorf("a response: %v", err)
	}
	s.rc.Tenant = "a"
	if got := s.items(t, path); len(got) != 1 {
		t.Errorf("items %q", got)
	}
}

// TestConversationTurns makes responses in a conversation.
func TestConversationTurns(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{"items":[{"role":"developer","content":"rule"},{"role":"user","content":"one"}]}`)
	in := `,"conversation":"` + id + `"`
	first := s.create(t, in+weatherTool, "<|channel|>analysis<|message|>thought<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>")
	if got := first.Get("conversation").Raw; got != `{"id":"`+id+`"}` {
		t.Errorf("conversation %s", got)
	}
	call := first.Get("output.1.call_id").Str
	back := `[{"type":"function_call_output","call_id":"` + call + `","output":"sunny"}]`
	s.create(t, `,"conversation":{"id":"`+id+`"},"stream":true,"input":`+back+weatherTool, said)
	if n := len(s.items(t, path)); n != 6 {
		t.Errorf("%d items", n)
	}
	prompt := s.prompt(t, in+`,"input":"two","store":false`)
	want := "rule<|end|><|start|>user<|message|>one<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>" +
		"<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sunny<|end|><|start|>assistant<|channel|>final<|message|>answer<|end|>" +
		"<|start|>user<|message|>two<|end|><|start|>assistant"
	if !strings.HasSuffix(prompt, want) {
		t.Errorf("the prompt:\n%s", prompt)
	}
	if got, err := s.do("GET", "/v1/responses/"+first.Get("id").Str); err != nil || gjson.Get(got, "conversation.id").Str != id {
		t.Errorf("the stored response: %s, %v", got, err)
	}
	if err := s.fails(t, in+`,"input":[{"role":"user","id":"`+s.items(t, path)[0]+`","content":"again"}]`); err.Status != 400 || err.Param != "input" {
		t.Errorf("an item that the conversation has: %v", err)
	}
	if got := s.create(t, in+`,"input":"three"`, said); got.Get("conversation.id").Str != id {
		t.Errorf("after a refusal: %s", got.Get("conversation").Raw)
	}
}

// TestConversationReadOnly shows that a response which is not stored leaves its
// conversation alone.
func TestConversationReadOnly(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{"items":[{"role":"user","content":"one"}]}`)
	request, err := s.decode([]byte(`{"model":"gpt-oss-20b","conversation":"`+id+`","input":"aside","store":false}`), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	if request.Info().Lock != nil {
		t.Error("the conversation is locked")
	}
	got := gjson.Parse(run(t, request, apitest.Said(said).Chunks(apitest.Size(5))))
	if got.Get("conversation").Raw != "null" || len(s.items(t, path)) != 1 {
		t.Errorf("conversation %s, items %q", got.Get("conversation").Raw, s.items(t, path))
	}
	for _, path := range []string{InputTokensPath, RenderPath} {
		if _, err := s.serve("POST", path, []byte(`{"model":"gpt-oss-20b","conversation":"`+id+`"}`), s.rc); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if err := s.Store.Lock(context.Background(), "a", id, "other", 0); err != nil {
			t.Errorf("%s locks the conversation: %v", path, err)
		}
	}
}

// TestConversationLocked shows that one response at a time is made in a
// conversation.
func TestConversationLocked(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{}`)
	in := `,"conversation":"` + id + `","input":"one"`
	lock := func() *write.Request {
		t.Helper()
		request, err := s.decode([]byte(`{"model":"gpt-oss-20b","stream":true`+in+`}`), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		return request
	}
	locked := func() {
		t.Helper()
		if err := s.fails(t, in); err.Status != 409 || err.Code != "conversation_locked" || err.Param != "conversation" || err.RetryAfter == 0 {
			t.Errorf("another response: %v", err)
		}
		if _, err := s.ask("POST", path+"/items", `{"items":[{"role":"user","content":"x"}]}`); err == nil || err.Status != 409 {
			t.Errorf("other items: %v", err)
		}
	}
	request := lock()
	locked()
	if err := request.Lock.Renew(context.Background()); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	locked()
	for range 2 {
		if err := request.Lock.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	}

	request = lock() // it is unlocked, so it can be locked again
	run(t, request, apitest.Said(said).Chunks(apitest.Size(5)))
	if n := len(s.items(t, path)); n != 2 {
		t.Errorf("%d items after a response", n)
	}

	failed := lock()
	final(t, failed, string(fail(t, newReply(failed, api.SingleCall), nil, apierror.New(http.StatusBadGateway, "", "", "Broken."))))
	cancelled := newReply(lock(), api.SingleCall)
	if _, err := cancelled.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>final<|message|>b")}); err != nil {
		t.Fatal(err)
	}
	cancel(t, cancelled)
	if n := len(s.items(t, path)); n != 2 {
		t.Errorf("%d items after responses that failed", n)
	}

	if err := s.fails(t, `,"conversation":"`+id+`","input":[{"role":"user"}]`); err.Status != 400 {
		t.Errorf("%v", err)
	}
	lock() // refused requests lock nothing
}

// TestConversationCut shows what of an incomplete response a conversation gets.
func TestConversationCut(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"<|channel|>final<|message|>ha":                                               "user assistant",
		" to=functions.get_weather<|channel|>commentary json<|message|>{\"ci":         "user",
		"<|channel|>commentary<|message|>so<|end|><|start|>assistant to=functions.f<": "user assistant",
	} {
		s := newServer()
		id, path := s.conversation(t, `{}`)
		request, err := s.decode([]byte(ask(`,"conversation":"`+id+`"`+weatherTool)), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		run(t, request, []engine.Chunk{{Tokens: apitest.Tokens(output), Finish: engine.FinishLength}})
		items := s.must(t, "GET", path+"/items?order=asc", "").Get("data").Array()
		roles := make([]string, 0, len(items))
		for _, item := range items {
			roles = append(roles, item.Get("role").Str)
		}
		if got := strings.Join(roles, " "); got != want {
			t.Errorf("%s: %q, want %q", output, got, want)
		}
		s.prompt(t, `,"conversation":"`+id+`","input":"go on"`)
	}
}

// forgetfulStore loses its conversations while a response is made.
type forgetfulStore struct{ store.Store }

func (forgetfulStore) AddItems(context.Context, string, string, string, []store.Item) error {
	return store.ErrNotFound
}

// TestConversationLost shows that a response says so if its conversation could
// not be given its items.
func TestConversationLost(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		s := newServer()
		id, _ := s.conversation(t, `{}`)
		s.Store = forgetfulStore{s.Store}
		request, err := s.decode([]byte(ask(`,"conversation":"`+id+`","stream":`+stream)), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(request, api.SingleCall)
		out, _ := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop})
		got := gjson.Parse(final(t, request, string(mustEnd(t, r, out))))
		if got.Get("conversation").Raw != "null" || got.Get("status").Str != "completed" || !errors.Is(r.Fault(), store.ErrNotFound) {
			t.Errorf("conversation %s, %s, error %v", got.Get("conversation").Raw, got.Get("status").Raw, r.Fault())
		}
		if stored, err := s.do("GET", Path+"/"+got.Get("id").Str); err != nil || stored != got.Raw {
			t.Errorf("stored is (%v) %s, want %s", err, stored, got.Raw)
		}
	}
}

// stickyStore never unlocks a conversation.
type stickyStore struct{ store.Store }

func (s stickyStore) Lock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	if lease == 0 {
		return errBroken
	}
	return s.Store.Lock(ctx, tenant, id, holder, lease)
}

// TestConversationKept shows that a response stays in the conversation that has
// its items, even if that could not be unlocked.
func TestConversationKept(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{}`)
	s.Store = stickyStore{s.Store}
	request, err := s.decode([]byte(ask(`,"conversation":"`+id+`"`)), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	r := newReply(request, api.SingleCall)
	out, _ := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop})
	got := gjson.Parse(final(t, request, string(mustEnd(t, r, out))))
	if got.Get("conversation.id").Str != id || !errors.Is(r.Fault(), errBroken) || len(s.items(t, path)) != 2 {
		t.Errorf("conversation %s, error %v", got.Get("conversation").Raw, r.Fault())
	}
}

// TestConversationLockLost shows that a response adds nothing once another has
// locked its conversation, and cannot get the lock back.
func TestConversationLockLost(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{}`)
	request, err := s.decode([]byte(ask(`,"conversation":"`+id+`"`)), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{ // as after its lease has lapsed
		s.Store.Lock(context.Background(), "a", id, request.ResponseID, 0),
		s.Store.Lock(context.Background(), "a", id, "another", time.Minute),
		s.Store.Lock(context.Background(), "a", id, "another", 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := request.Lock.Renew(context.Background()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a renewal: %v", err)
	}
	r := newReply(request, api.SingleCall)
	out, _ := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop})
	got := gjson.Parse(final(t, request, string(mustEnd(t, r, out))))
	if got.Get("conversation").Raw != "null" || !errors.Is(r.Fault(), store.ErrConflict) || len(s.items(t, path)) != 0 {
		t.Errorf("conversation %s, error %v, items %q", got.Get("conversation").Raw, r.Fault(), s.items(t, path))
	}
}

func (brokenStore) PutConversation(context.Context, string, *store.Conversation) error {
	return errBroken
}

func (brokenStore) Conversation(context.Context, string, string) (*store.Conversation, error) {
	return nil, errBroken
}

func (brokenStore) DeleteConversation(context.Context, string, string) error { return errBroken }

func (brokenStore) AddItems(context.Context, string, string, string, []store.Item) error {
	return errBroken
}

func (brokenStore) ConversationItems(context.Context, string, string, store.Page) ([]store.Item, error) {
	return nil, errBroken
}

func (brokenStore) ConversationSize(context.Context, string, string) (store.Size, error) {
	return store.Size{}, errBroken
}

func (brokenStore) ConversationItem(context.Context, string, string, string) (store.Item, error) {
	return store.Item{}, errBroken
}

func (brokenStore) DeleteItem(context.Context, string, string, string) error { return errBroken }

func (brokenStore) Lock(context.Context, string, string, string, time.Duration) error {
	return errBroken
}

// TestConversationStoreDown shows that what is about conversations is refused
// while the store does not answer.
func TestConversationStoreDown(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.Store = brokenStore{}
	path := stored.ConversationsPath + "/conv_1"
	items := `{"items":[{"role":"user","content":"x"}]}`
	requests := []struct{ method, path, body string }{
		{"POST", stored.ConversationsPath, items},
		{"GET", path, ""},
		{"POST", path, `{"metadata":{}}`},
		{"DELETE", path, ""},
		{"GET", path + "/items", ""},
		{"POST", path + "/items", items},
		{"GET", path + "/items/a", ""},
		{"DELETE", path + "/items/a", ""},
	}
	refusals := make([]*apierror.Error, len(requests), len(requests)+1)
	for i, r := range requests {
		_, refusals[i] = s.ask(r.method, r.path, r.body)
	}
	for i, err := range append(refusals, s.fails(t, `,"conversation":"conv_1"`)) {
		if err == nil || err.Status != http.StatusServiceUnavailable || err.Code != "store_unavailable" || !errors.Is(err, errBroken) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestConversationIsHistory shows that a conversation shows the model the same
// tokens as sending all of it again.
func TestConversationIsHistory(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, _ := s.conversation(t, `{}`)
	var history []string
	for turn := range 4 {
		input := fmt.Sprintf(`{"role":"user","content":"turn %d"}`, turn)
		history = append(history, input)
		full := s.prompt(t, `,"store":false,"input":[`+strings.Join(history, ",")+`]`)
		if diff := cmp.Diff(full, s.prompt(t, `,"store":false,"conversation":"`+id+`","input":[`+input+`]`)); diff != "" {
			t.Errorf("turn %d (-history +conversation):\n%s", turn, diff)
		}
		made := s.create(t, `,"conversation":"`+id+`","input":[`+input+`]`, "<|channel|>analysis<|message|>thought<|end|><|start|>assistant"+said)
		for _, item := range made.Get("output").Array() {
			history = append(history, item.Raw)
		}
	}
}

// FuzzConversations asks for arbitrary things about conversations. An answer is
// well-formed, an error one that has a status and a name.
func FuzzConversations(f *testing.F) {
	for _, c := range [][3]string{
		{"POST", "", `{"items":[{"role":"user","id":"b","content":[{"type":"input_text","text":"\u0000"}]}],"metadata":{"a":"b"}}`},
		{"GET", "/conv_1", ``},
		{"POST", "/conv_1", `{"metadata":{}}`},
		{"POST", "/conv_1/items", `{"items":[{"type":"function_call","call_id":"x","name":"f"},{"id":"a"}]}`},
		{"GET", "/conv_1/items?order=asc&after=a&limit=1", ``},
		{"GET", "/conv_1/items/a", ``},
		{"DELETE", "/conv_1/items/a", ``},
		{"DELETE", "/conv_1", ``},
	} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		s := newServer()
		err := s.Store.PutConversation(context.Background(), "a", &store.Conversation{ID: "conv_1", Metadata: []byte(`{}`)})
		if err == nil {
			err = s.Store.AddItems(context.Background(), "a", "conv_1", "", []store.Item{{ID: "a", JSON: []byte(`{"type":"message","id":"a","status":"completed","role":"user","content":[]}`)}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ask(method, stored.ConversationsPath+path, body); err != nil && (err.Status < 400 || err.Status >= 500 || !json.Valid(err.JSON())) && err.Status != http.StatusNotImplemented {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	})
}
