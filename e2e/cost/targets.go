package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/render"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Targets returns everything that can be searched, and what closes it.
//
// A target is the handling of a request, its reply, or both. They are apart where one would
// hide the other: the search ends with the first scenario that costs too much.
func Targets() (all []Target, closeAll func()) {
	server, closeServer := listTools()

	return []Target{
		{Name: "chat", Seeds: chatSeeds, Begin: post(chat.Path).handle},
		{Name: "chat-answer", Seeds: chatAnswerSeeds, Begin: post(chat.Path).reply},
		{Name: "chat-render", Seeds: chatSeeds, Begin: post(chat.RenderPath).handle},
		{Name: "chat-derender", Seeds: chatAnswerSeeds, Begin: derender(chat.Path, "chat_request").handle},
		{Name: "chat-chunk", Seeds: chatAnswerSeeds, Begin: derenderChunk(chat.Path, "chat_request").handle},
		{Name: "responses", Seeds: responsesSeeds, Begin: post(responses.Path).handle},
		{Name: "responses-answer", Seeds: responsesAnswerSeeds, Begin: post(responses.Path).reply},
		{
			Name: "responses-derender", Seeds: responsesAnswerSeeds,
			Begin: derender(responses.Path, "responses_request").handle,
		},
		{
			Name: "responses-chunk", Seeds: responsesAnswerSeeds,
			Begin: derenderChunk(responses.Path, "responses_request").handle,
		},

		{Name: "custom-tools", Seeds: customToolSeeds, Begin: post(responses.Path).handle},
		{Name: "stored", Seeds: storedSeeds, Begin: post(responses.Path).handle},
		{Name: "compact", Seeds: slices.Concat(responsesSeeds, storedSeeds), Begin: post(responses.CompactPath).handle},
		{Name: "input-tokens", Seeds: responsesSeeds, Begin: post(responses.InputTokensPath).handle},
		{Name: "conversations", Seeds: conversationSeeds, Begin: post("/v1/conversations").handle},
		{Name: "conversation-items", Seeds: conversationSeeds, Begin: post("/v1/conversations/conv_1/items").handle},
		{Name: "mcp", Seeds: mcpSeeds, Begin: (&endpoint{path: responses.Path, mcp: server}).both},

		{Name: "messages", Seeds: messagesSeeds, Begin: post(messages.Path).handle},
		{Name: "messages-answer", Seeds: messagesAnswerSeeds, Begin: post(messages.Path).reply},
		{
			Name: "messages-derender", Seeds: messagesAnswerSeeds,
			Begin: derender(messages.Path, "messages_request").handle,
		},
		{
			Name: "messages-chunk", Seeds: messagesAnswerSeeds,
			Begin: derenderChunk(messages.Path, "messages_request").handle,
		},
		{Name: "count-tokens", Seeds: messagesSeeds, Begin: post(messages.CountPath).handle},

		{Name: "tokenize", Seeds: tokenizeSeeds, Begin: post(render.TokenizePath).handle},
		{Name: "detokenize", Seeds: detokenizeSeeds, Begin: post(render.DetokenizePath).handle},
	}, closeServer
}

const tenant = "tenant"

// endpoint is what a target sends its requests to.
type endpoint struct {
	path string
	// wraps is the member of the body that has the request; "": the body is the request.
	wraps string
	// chunked says that the body has the answer as what is known of a stream, and its end as the
	// next chunk.
	chunked bool
	// mcp is the server whose tools requests can name; nil: there is none.
	mcp *toolServer
}

func post(path string) *endpoint { return &endpoint{path: path} }

// derender is an endpoint whose requests have the answer of the model in them.
func derender(path, member string) *endpoint {
	return &endpoint{path: path + "/derender", wraps: member}
}

// derenderChunk is the same for the last chunk of a stream, whose tokens before are in it.
func derenderChunk(path, member string) *endpoint {
	return &endpoint{path: path + "/derender", wraps: member, chunked: true}
}

// handle measures the handling of a request.
func (e *endpoint) handle(s *scenario) task {
	x := e.begin(s)
	return func() (int, any) {
		defer x.close()
		outcome := x.handle()
		return x.reserved, outcome
	}
}

// reply measures the reply to a request that has been handled before.
func (e *endpoint) reply(s *scenario) task {
	x := e.begin(s)
	outcome := x.handle()
	script := newScript(s.answerBytes(), x.answer)
	return func() (int, any) {
		defer x.close()
		again := x.reply(outcome, script)
		return x.reserved + again, api.Outcome{Kind: outcome.Kind, Err: outcome.Err}
	}
}

// both measures the handling and the reply.
func (e *endpoint) both(s *scenario) task {
	x := e.begin(s)
	script := newScript(s.answerBytes(), x.answer)
	return func() (int, any) {
		defer x.close()
		outcome := x.handle()
		again := x.reply(outcome, script)
		// The messages to the server count, because the model's calls cause them and have no other bytes.
		counted := x.reserved + again
		if e.mcp != nil {
			counted += e.mcp.traffic()
		}
		return counted, api.Outcome{Kind: outcome.Kind, Err: outcome.Err}
	}
}

// exchange is one request to an endpoint, and the state that it finds.
type exchange struct {
	scenario *scenario
	endpoint *api.Endpoint
	request  *api.HTTPRequest
	answer   []harmony.Token

	// reserved is the bytes that were taken of the budget.
	reserved int
	close    func()
}

// begin makes a service of its own for a request, with what the scenario has stored.
func (e *endpoint) begin(s *scenario) *exchange {
	x := &exchange{scenario: s, answer: s.tokens(), close: func() {}}
	env := environment()
	// One store for stored items and approvals, as in the service.
	memory := env.Memory.(store.Store)
	sealer := newSealer()
	r := &responses.API{
		Store: memory, Approvals: memory, Sealer: sealer, Compactor: sealer, Chains: responses.NewChains(1 << 20),
	}
	if e.mcp != nil {
		// A client of its own: one that is shared would remember the list of another scenario.
		e.mcp.begin(s.Listing)
		r.Tools = e.mcp.client()
		x.close = r.Tools.Close
	}

	others := append(chat.Endpoints(), (&messages.API{Sealer: sealer}).Endpoints()...)
	// The render service has no store, so its endpoints are made without one.
	stateless := slices.Concat(others, (&responses.API{Sealer: sealer, Compactor: sealer}).Endpoints())
	all := slices.Concat(others, r.Endpoints(), render.Endpoints(render.Options{Stateless: stateless}))
	putItems(all, x.context(env), memory, s.Stored)

	// Storing the items was another request's cost.
	x.reserved = 0

	var ids [2]string
	x.endpoint, ids = api.Match(all, http.MethodPost, e.path)
	x.request = &api.HTTPRequest{
		IDs: ids, Path: e.path, Query: url.Values{}, Body: e.body(s, x.answer),
		Context: x.context(env),
	}
	return x
}

// body is the body of a request.
func (e *endpoint) body(s *scenario, answer []harmony.Token) []byte {
	if e.wraps == "" {
		return s.Request
	}

	// The model's answer comes with the request: a derender makes the reply of both.
	body := []byte(`{"model":"m","generate_response":`)
	if e.chunked && len(answer) > 0 {
		last := len(answer) - 1
		body = streamState(answer[:last])
		answer = answer[last:]
	}
	body = append(body, generated(0, answer, true)...)
	body = append(append(body, `,"`+e.wraps+`":`...), s.Request...)
	return append(body, '}')
}

// streamState is the beginning of the body of a chunk, with the tokens that came before it, each
// in a chunk of its own.
func streamState(before []harmony.Token) []byte {
	lengths := make([]int, len(before))
	for i := range lengths {
		lengths[i] = 1
	}
	// There is no error: these are numbers.
	tokens, _ := json.Marshal(before)
	ones, _ := json.Marshal(lengths)

	body := append([]byte(`{"model":"m","stream":true,"stream_state":{"request_id":"1","created":1,"output_token_ids":`),
		tokens...)
	body = append(append(body, `,"output_chunk_lens":`...), ones...)
	return append(body, `},"generate_chunk":`...)
}

func (x *exchange) handle() api.Outcome {
	return x.endpoint.Handle(x.request.Context.Work.Context(), x.request)
}

func (x *exchange) reply(outcome api.Outcome, script *script) (again int) {
	if outcome.Kind != api.OutcomeRequest {
		return 0
	}
	return play(outcome.Request, script)
}

// context is what the service knows of a request beside its body.
func (x *exchange) context(env *turn.Env) *turn.RequestContext {
	model := &turn.Model{}
	if x.scenario.Retry {
		model.ToolArguments = turn.ArgumentsRetry
	}
	return &turn.RequestContext{
		Env: env, Model: model, RequestID: "1", Tenant: tenant, Checked: x.scenario.Checked,
		Work: work.New(context.Background(), work.PerRequest),
		Reserve: func(n int) *apierror.Error {
			// Nothing is refused: the search is for what a request that gets all its memory costs.
			x.reserved += n
			return nil
		},
	}
}

// environment is a clock that stands still, ids that count, and a store of its own.
func environment() *turn.Env {
	// Ids and time that differed from run to run would differ in their cost as well.
	ids := 0
	return &turn.Env{
		Renderer: harmony.NewRenderer(), Now: clock, Limits: turn.DefaultLimits(),
		NewID: func(prefix string) string {
			ids++
			return prefix + strconv.Itoa(ids)
		},
		Memory: store.NewMemory(store.Options{
			TextBytes: 1 << 20, TextTTL: time.Hour, ResponseBytes: 64 << 20, ResponseTTL: time.Hour, Now: clock,
		}),
	}
}

// batch is how many items a client may add to a conversation at once.
const batch = 20

// putItems stores items as a client does, so that nothing is stored that no client can
// store: it adds them to the conversation conv_1. The response resp_1 gets those that were
// taken as its input.
func putItems(endpoints []api.Endpoint, rc *turn.RequestContext, memory store.Store, items []json.RawMessage) {
	ctx := context.Background()
	conversation := store.Conversation{ID: "conv_1", Metadata: []byte(`{}`)}
	if err := memory.PutConversation(ctx, tenant, &conversation); err != nil {
		panic(err)
	}
	const path = "/v1/conversations/conv_1/items"
	add, ids := api.Match(endpoints, http.MethodPost, path)
	for some := range slices.Chunk(items, batch) {
		body := append(append([]byte(`{"items":[`), bytes.Join(rawOf(some), []byte(","))...), `]}`...)
		// What is refused is not stored.
		_ = add.Handle(ctx, &api.HTTPRequest{IDs: ids, Path: path, Query: url.Values{}, Body: body, Context: rc})
	}

	// What was taken and not what was sent, so that both places hold the same items.
	taken, err := memory.ConversationItems(ctx, tenant, "conv_1", store.Page{})
	if err != nil {
		panic(err)
	}
	if err := memory.Put(ctx, tenant, &store.Response{
		ID: "resp_1", Version: 1, Object: []byte(`{"id":"resp_1","object":"response","status":"completed"}`),
		Input: taken,
	}); err != nil {
		panic(err)
	}
}

func rawOf(list []json.RawMessage) [][]byte {
	all := make([][]byte, len(list))
	for i, raw := range list {
		all[i] = raw
	}
	return all
}

// newSealer makes a sealer with a fixed key, whose salts come in the same order each time.
func newSealer() *seal.Sealer {
	s, err := seal.NewSealer([][]byte{make([]byte, seal.KeyBytes)}, rand.NewChaCha8([32]byte{}))
	if err != nil {
		panic(err)
	}
	return s
}
