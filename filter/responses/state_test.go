package responses

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// server is an API with a store, and a tenant's way to it.
type server struct {
	API
	rc *turn.RequestContext
}

func newServer() *server {
	rc := apitest.NewContext()
	rc.Tenant = "a"
	return &server{API{Store: store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, Now: rc.Now}), Chains: read.NewChains(1 << 20)}, rc}
}

// create makes a response to a request whose members follow the model's.
func (s *server) create(t *testing.T, members, output string) gjson.Result {
	t.Helper()
	request, err := s.decode([]byte(`{"model":"gpt-oss-20b"`+members+`}`), s.rc)
	if err != nil {
		t.Fatalf("%s: %v (param %q)", members, err, err.Param)
	}
	all := apitest.Said(output).Chunks(apitest.Size(5))
	return gjson.Parse(final(t, request, run(t, request, all)))
}

// prompt is what the model is shown for a request.
func (s *server) prompt(t *testing.T, members string) string {
	t.Helper()
	request, err := s.decode([]byte(`{"model":"gpt-oss-20b"`+members+`}`), s.rc)
	if err != nil {
		t.Fatalf("%s: %v (param %q)", members, err, err.Param)
	}
	return apitest.Spell(t, request.Engine().Prompt)
}

func (s *server) fails(t *testing.T, members string) *apierror.Error {
	t.Helper()
	_, err := s.decode([]byte(`{"model":"gpt-oss-20b"`+members+`}`), s.rc)
	if err == nil {
		t.Fatalf("%s is accepted", members)
	}
	return err
}

// do asks for something that needs no engine.
func (s *server) do(method, path string) (string, *apierror.Error) {
	b, err := s.serve(method, path, nil, s.rc)
	if route, _, _ := strings.Cut(path, "?"); strings.HasSuffix(route, "/input_items") && err == nil {
		if listErr := responsestest.Items(b); listErr != nil {
			return "", apierror.New(http.StatusInternalServerError, "", "", "%v", listErr)
		}
	}
	return string(b), err
}

const said = "<|channel|>final<|message|>answer<|return|>"

// TestChain continues responses, with instructions, tools and effort that
// change.
func TestChain(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := s.create(t, `,"input":"one","instructions":"old"`+weatherTool, "<|channel|>analysis<|message|>thought<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>")
	call := first.Get("output.1.call_id").Str
	back := `{"type":"function_call_output","call_id":"` + call + `","output":"sunny"}`
	second := s.create(t, `,"stream":true,"instructions":"new","reasoning":{"effort":"high"},"previous_response_id":"`+first.Get("id").Str+`","input":[`+back+`]`, said)
	if got := second.Get("previous_response_id").Str; got != first.Get("id").Str || !second.Get("store").Bool() {
		t.Errorf("previous_response_id %q, store %s", got, second.Get("store").Raw)
	}
	prompt := s.prompt(t, `,"instructions":"new","reasoning":{"effort":"high"},"previous_response_id":"`+first.Get("id").Str+`","input":[`+back+`]`)
	want := "<|start|>user<|message|>one<|end|><|start|>assistant<|channel|>analysis<|message|>thought<|end|>" +
		"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>" +
		"<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sunny<|end|><|start|>assistant"
	if !strings.HasSuffix(prompt, "<|start|>developer<|message|># Instructions\n\nnew<|end|>"+want) || !strings.Contains(prompt, "Reasoning: high") || strings.Contains(prompt, "namespace") {
		t.Errorf("the prompt of a continued turn:\n%s", prompt)
	}
	prompt = s.prompt(t, `,"previous_response_id":"`+second.Get("id").Str+`","input":"two","store":false`)
	if !strings.HasSuffix(prompt, "<|message|>sunny<|end|><|start|>assistant<|channel|>final<|message|>answer<|end|><|start|>user<|message|>two<|end|><|start|>assistant") ||
		strings.Contains(prompt, "thought") || strings.Contains(prompt, "new") {
		t.Errorf("the prompt after an answer:\n%s", prompt)
	}
	if prompt := s.prompt(t, `,"previous_response_id":"`+second.Get("id").Str+`"`); !strings.HasSuffix(prompt, "answer<|end|><|start|>assistant") {
		t.Errorf("the prompt without input:\n%s", prompt)
	}

	if err := s.fails(t, `,"previous_response_id":"`+first.Get("id").Str+`","input":"two"`); err.Status != 400 || !strings.Contains(err.Message, call) {
		t.Errorf("a call of the chain without output: %v", err)
	}
	for _, id := range []string{"resp_none", strings.Repeat("x", 200)} {
		if err := s.fails(t, `,"previous_response_id":"`+id+`","input":"two"`); err.Status != 400 || err.Code != "previous_response_not_found" || err.Param != "previous_response_id" {
			t.Errorf("an unknown previous response: %v", err)
		}
	}
	s.rc.Tenant = "b"
	if err := s.fails(t, `,"previous_response_id":"`+first.Get("id").Str+`","input":"two"`); err.Status != 400 {
		t.Errorf("another tenant's response: %v", err)
	}
}

// TestCutCall continues a response whose last call was cut.
func TestCutCall(t *testing.T) {
	t.Parallel()
	s := newServer()
	request, err := s.decode([]byte(ask(weatherTool)), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	const back = `,"input":[{"type":"function_call","call_id":"x","name":"f","status":"incomplete"},{"type":"function_call_output","call_id":"x","output":"of the client's own"}]`
	if prompt := s.prompt(t, `,"previous_response_id":"`+s.create(t, back, said).Get("id").Str+`"`); !strings.Contains(prompt, "own<|end|>") {
		t.Errorf("an incomplete call of the client with its output:\n%s", prompt)
	}
	first := gjson.Parse(run(t, request, apitest.Cut(` to=functions.get_weather<|channel|>commentary json<|message|>{"ci`).Chunks(apitest.Size(99))))
	if prompt := s.prompt(t, `,"previous_response_id":"`+first.Get("id").Str+`","input":"two"`); !strings.HasSuffix(prompt, "<|message|>Hi<|end|><|start|>user<|message|>two<|end|><|start|>assistant") {
		t.Errorf("the prompt after a cut call:\n%s", prompt)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := s.create(t, `,"input":[{"role":"user","id":"msg_mine","content":"one"}]`, "<|channel|>analysis<|message|>thought<|end|><|start|>assistant"+said)
	input := `,"input":[{"type":"item_reference","id":"msg_mine"},{"id":"` + first.Get("output.0.id").Str + `"},{"type":"item_reference","id":"` + first.Get("output.1.id").Str + `"},{"role":"user","content":"two"}]`
	want := "<|start|>user<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>answer<|end|><|start|>user<|message|>two<|end|><|start|>assistant"
	if prompt := s.prompt(t, input); !strings.HasSuffix(prompt, want) {
		t.Errorf("the prompt of references:\n%s", prompt)
	}
	second := s.create(t, input, said)
	if _, err := s.do("DELETE", "/v1/responses/"+first.Get("id").Str); err != nil {
		t.Fatal(err)
	}
	if prompt := s.prompt(t, `,"previous_response_id":"`+second.Get("id").Str+`","input":"three"`); !strings.Contains(prompt, want+"<|channel|>final") {
		t.Errorf("what a response refers to is gone with the response that had it:\n%s", prompt)
	}
	if err := s.fails(t, `,"input":[{"type":"item_reference","id":"msg_other"}]`); err.Status != 404 || err.Code != "item_not_found" || err.Param != "input[0].id" {
		t.Errorf("an unknown reference: %v", err)
	}
	several := `,"input":[{"type":"item_reference","id":"msg_other"},{"type":"item_reference","id":"msg_mine"},{"type":"item_reference","id":"msg_third"}]`
	if err := s.fails(t, several); err.Param != "input[0].id" || !strings.Contains(err.Message, `The items "msg_other" and "msg_third" are not stored`) {
		t.Errorf("unknown references: %v", err)
	}
	s.rc.Tenant = "b"
	if err := s.fails(t, `,"input":[{"type":"item_reference","id":"msg_mine"}]`); err.Status != 404 {
		t.Errorf("another tenant's item: %v", err)
	}
}

func TestGetAndDelete(t *testing.T) {
	t.Parallel()
	s := newServer()
	for _, stream := range []string{"true", "false"} {
		made := s.create(t, `,"input":"one","metadata":{"a":"b"},"stream":`+stream+weatherTool, "<|channel|>analysis<|message|>thought<|end|><|start|>assistant"+said)
		path := "/v1/responses/" + made.Get("id").Str
		got, err := s.do("GET", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := responsestest.Object([]byte(got)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(made.Value(), gjson.Parse(got).Value()); diff != "" {
			t.Errorf("stream %s: the stored response is another (-made +got):\n%s", stream, diff)
		}
		if _, err := s.do("GET", path+"?stream=true&starting_after=3"); err == nil || err.Param != "stream" {
			t.Errorf("GET as a stream: %v", err)
		}
		if _, err := s.do("POST", path+"/cancel"); err == nil || err.Status != 400 {
			t.Errorf("cancel: %v", err)
		}
		s.rc.Tenant = "b"
		for _, r := range []struct{ method, path string }{{"GET", path}, {"DELETE", path}, {"POST", path + "/cancel"}, {"GET", path + "/input_items"}} {
			if _, err := s.do(r.method, r.path); err == nil || err.Status != 404 {
				t.Errorf("%s %s of another tenant: %v", r.method, r.path, err)
			}
		}
		s.rc.Tenant = "a"
		if got, err := s.do("DELETE", path); err != nil || got != `{"id":"`+made.Get("id").Str+`","object":"response","deleted":true}` {
			t.Errorf("DELETE: %s, %v", got, err)
		}
		for _, method := range []string{"GET", "DELETE"} {
			if _, err := s.do(method, path); err == nil || err.Status != 404 || err.Code != "response_not_found" {
				t.Errorf("%s of a deleted response: %v", method, err)
			}
		}
	}
	made := s.create(t, `,"input":"one","store":false`, said)
	if _, err := s.do("GET", "/v1/responses/"+made.Get("id").Str); err == nil || err.Status != 404 || made.Get("store").Bool() {
		t.Errorf("store false: %v", err)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		"GET /v1/responses/resp_1": true, "DELETE /v1/responses/resp_1": true, "POST /v1/responses/resp_1/cancel": true,
		"GET /v1/responses/resp_1/input_items": true, "POST /v1/responses/input_tokens": true,
		"POST /v1/responses": true, "POST /v1/responses/compact": true, "POST /v1/responses/render": true,
		"GET /v1/responses": false, "GET /v1/responses/": false, "POST /v1/responses/resp_1": false,
		"DELETE /v1/responses/resp_1/input_items": false, "GET /v1/responses/resp_1/x": false,
		"GET /v1/responses/resp_1/input_items/x": false, "GET /v1/models": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got, _ := api.Match((&API{}).Endpoints(), method, path); (got != nil) != want {
			t.Errorf("%s is served: %v", request, got != nil)
		}
	}
}

func TestInputItems(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := s.create(t, `,"input":"one"`, said)
	path := "/v1/responses/" + first.Get("id").Str + "/input_items"
	got, err := s.do("GET", path)
	if err != nil {
		t.Fatal(err)
	}
	id := gjson.Get(got, "data.0.id").Str
	if want := `{"object":"list","data":[{"type":"message","id":"` + id + `","status":"completed","role":"user","content":[{"type":"input_text","text":"one"}]}],"first_id":"` + id + `","last_id":"` + id + `","has_more":false}`; got != want || !strings.HasPrefix(id, "msg_") {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	second := s.create(t, `,"previous_response_id":"`+first.Get("id").Str+`","input":[{"role":"assistant","id":"b","status":null,"content":"two"},
		{"type":"function_call","id":"c","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call_output","id":"d","call_id":"x","output":[ {"type":"input_text","text":"three"} ]},
		{"type":"web_search_call","id":"e","status":"completed","action":{"type":"search"}},{"type":"message","id":"f","role":"user","content":[{"type":"input_text","text":"four"}]}]`, said)
	path = "/v1/responses/" + second.Get("id").Str + "/input_items"
	answer := first.Get("output.0.id").Str
	for query, want := range map[string]string{
		"?order=asc":                   id + " " + answer + " b c d e f false",
		"":                             "f e d c b " + answer + " " + id + " false",
		"?order=desc&limit=2":          "f e true",
		"?order=asc&limit=2&after=c":   "d e true",
		"?order=asc&limit=100&after=d": "e f false",
		"?order=asc&after=f":           "false",
	} {
		got, err := s.do("GET", path+query)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, id := range gjson.Get(got, "data.#.id").Array() {
			list = append(list, id.Str)
		}
		if got := strings.Join(append(list, gjson.Get(got, "has_more").Raw), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
		if len(list) > 0 && (gjson.Get(got, "first_id").Str != list[0] || gjson.Get(got, "last_id").Str != list[len(list)-1]) {
			t.Errorf("%s: %s", query, got)
		}
	}
	if got, _ := s.do("GET", path+"?order=asc&after="+answer+"&limit=1"); gjson.Get(got, "data.0.content.0.type").Str != "output_text" || gjson.Get(got, "data.0.status").Str != "completed" {
		t.Errorf("a text of the assistant: %s", got)
	}
	for query, param := range map[string]string{"?limit=0": "limit", "?limit=101": "limit", "?limit=x": "limit", "?order=up": "order", "?after=none": "after", "?%zz": ""} {
		if _, err := s.do("GET", path+query); err == nil || err.Status != 400 || err.Param != param {
			t.Errorf("%s: %v", query, err)
		}
	}
	if _, err := s.do("DELETE", "/v1/responses/"+first.Get("id").Str); err != nil {
		t.Fatal(err)
	}
	if got, err := s.do("GET", path+"?order=asc&limit=1"); err != nil || gjson.Get(got, "data.0.id").Str != "b" {
		t.Errorf("input items after the chain's beginning was deleted: %s, %v", got, err)
	}
	counted := &countingStore{Store: s.Store}
	s.Store = counted
	third := s.create(t, `,"input":"one"`, said)
	counted.reads()
	if _, err := s.do("GET", "/v1/responses/"+third.Get("id").Str+"/input_items"); err != nil || counted.reads() != "0 heads, 0 responses, 1 chains" {
		t.Errorf("a chain is read more than once: %v", err)
	}
}

func TestInputTokens(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.rc.Model.ContextLength = 200
	for _, text := range []string{"one", strings.Repeat("long ", 500)} {
		body := fmt.Sprintf(`{"model":"gpt-oss-20b","input":%s,"reasoning":{"effort":"low"}}`, apitest.Quote(text))
		got, err := s.serve("POST", InputTokensPath, []byte(body), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		rc := *s.rc
		rc.Model = &turn.Model{}
		request, err := s.decode([]byte(body), &rc)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`{"object":"response.input_tokens","input_tokens":%d}`, len(request.Engine().Prompt)); string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := s.serve("POST", InputTokensPath, []byte(`{"input":"x"}`), s.rc); err == nil || err.Param != "model" {
		t.Errorf("a request without model: %v", err)
	}
}

// TestCancel shows what is stored of a response whose client has gone.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := newServer()
	half := &engine.Chunk{Tokens: apitest.Tokens("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b")}
	request, apiErr := s.decode([]byte(ask(`,"stream":true`)), s.rc)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	r := newReply(request, api.SingleCall)
	if _, err := r.Push(nil, half); err != nil {
		t.Fatal(err)
	}
	cancel(t, r)
	if more := mustEnd(t, r, nil); len(more) > 0 {
		t.Errorf("a cancelled reply goes on: %s", more)
	}
	got, apiErr := s.do("GET", "/v1/responses/"+request.ResponseID)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if err := responsestest.Object([]byte(got)); err != nil {
		t.Error(err)
	}
	if gjson.Get(got, "status").Str != "cancelled" || gjson.Get(got, "output.#.status").Raw != `["completed","incomplete"]` {
		t.Errorf("%s", got)
	}

	whole, apiErr := s.decode([]byte(ask("")), s.rc)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	r = newReply(whole, api.SingleCall)
	if _, err := r.Push(nil, half); err != nil {
		t.Fatal(err)
	}
	cancel(t, r)
	if _, err := s.do("GET", "/v1/responses/"+whole.ResponseID); err == nil || err.Status != 404 {
		t.Errorf("a response that its client never heard of: %v", err)
	}
}

// TestFailIsStored shows that a stream which failed is stored so.
func TestFailIsStored(t *testing.T) {
	t.Parallel()
	s := newServer()
	request, err := s.decode([]byte(ask(`,"stream":true`)), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	out := fail(t, newReply(request, api.SingleCall), nil, apierror.New(http.StatusBadGateway, "engine_error", "", "Broken."))
	want := gjson.Parse(final(t, request, string(out)))
	got, err := s.do("GET", "/v1/responses/"+request.ResponseID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Value(), gjson.Parse(got).Value()); diff != "" {
		t.Errorf("(-sent +stored):\n%s", diff)
	}
}

// brokenStore is a store that does not answer.
type brokenStore struct{ store.Store }

var errBroken = errors.New("connection refused")

func (brokenStore) Put(context.Context, string, *store.Response) error { return errBroken }

func (brokenStore) Get(context.Context, string, string) (*store.Response, error) {
	return nil, errBroken
}

func (brokenStore) Chain(context.Context, string, string) ([]*store.Response, error) {
	return nil, errBroken
}

func (brokenStore) Head(context.Context, string, string) (store.Head, error) {
	return store.Head{}, errBroken
}

func (brokenStore) Items(context.Context, string, []string) (map[string]store.Item, error) {
	return nil, errBroken
}

func (brokenStore) Delete(context.Context, string, string) error { return errBroken }

// TestStoreDown shows that what needs the store is refused, and everything else
// goes on and says that it is not stored.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.Store = brokenStore{}
	for _, stream := range []string{"true", "false"} {
		request, err := s.decode([]byte(ask(`,"stream":`+stream)), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(request, api.SingleCall)
		out, _ := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop})
		got := gjson.Parse(final(t, request, string(mustEnd(t, r, out))))
		if got.Get("store").Bool() || got.Get("status").Str != "completed" || !errors.Is(r.Fault(), errBroken) {
			t.Errorf("store %s, %s, error %v", got.Get("store").Raw, got.Get("status").Raw, r.Fault())
		}
	}
	refusals := []*apierror.Error{s.fails(t, `,"previous_response_id":"resp_1","input":"x"`), s.fails(t, `,"input":[{"type":"item_reference","id":"x"}]`), nil, nil, nil, nil}
	for i, r := range []struct{ method, path string }{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
		_, refusals[2+i] = s.do(r.method, "/v1/responses/resp_1"+r.path)
	}
	for i, err := range refusals {
		if err == nil || err.Status != http.StatusServiceUnavailable || err.Code != "store_unavailable" || !errors.Is(err, errBroken) || strings.Contains(err.Message, "refused") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestChainIsHistory shows that continuing a response shows the model the same
// tokens as sending the whole conversation again.
func TestChainIsHistory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		s := newServer()
		var history, outputs []string
		previous := ""
		for step := range 4 {
			input := outputs
			if rng.IntN(3) == 0 {
				input = append(input, fmt.Sprintf(`{"role":"developer","content":"rule %d"}`, step))
			}
			input = append(input, fmt.Sprintf(`{"role":"user","content":"turn %d"}`, step))
			request, err := s.decode([]byte(`{"model":"gpt-oss-20b","stream":true`+mixedTools+previous+`,"input":[`+strings.Join(input, ",")+`]}`), s.rc)
			if err != nil {
				t.Fatal(err)
			}
			history = append(history, input...)
			full := s.prompt(t, mixedTools+`,"store":false,"input":[`+strings.Join(history, ",")+`]`)
			if diff := cmp.Diff(full, apitest.Spell(t, request.Engine().Prompt)); diff != "" {
				t.Fatalf("step %d (-history +chain):\n%s", step, diff)
			}
			r := gjson.Parse(final(t, request, run(t, request, apitest.Output{Tokens: model.Generate(rng), Finish: engine.FinishStop}.Chunks(func() int { return 1 + rng.IntN(5) }))))
			previous, outputs = `,"previous_response_id":"`+r.Get("id").Str+`"`, nil
			for _, item := range r.Get("output").Array() {
				history = append(history, item.Raw)
				if id := item.Get("call_id").Str; id != "" {
					outputs = append(outputs, `{"type":"function_call_output","call_id":"`+id+`","output":"ok"}`)
				}
			}
		}
	}
}
