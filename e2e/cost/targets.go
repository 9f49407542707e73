package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Targets returns everything that can be searched, and what closes it.
func Targets() (all []Target, closeAll func()) {
	listed, closeListed := listedTools()
	return []Target{
		{Name: "chat", Seeds: chatSeeds, Begin: post(chat.Path, chatEndpoints)},
		{Name: "chat-render", Seeds: chatSeeds, Begin: post(chat.RenderPath, chatEndpoints)},
		{Name: "responses", Seeds: responsesSeeds, Begin: post(responses.Path, responsesEndpoints)},
		{Name: "compact", Seeds: responsesSeeds, Begin: post(responses.CompactPath, responsesEndpoints)},
		{Name: "input-tokens", Seeds: responsesSeeds, Begin: post(responses.InputTokensPath, responsesEndpoints)},
		{Name: "conversations", Seeds: conversationSeeds, Begin: post("/v1/conversations", responsesEndpoints)},
		{Name: "messages", Seeds: messagesSeeds, Begin: post(messages.Path, messagesEndpoints)},
		{Name: "count-tokens", Seeds: messagesSeeds, Begin: post(messages.CountPath, messagesEndpoints)},
		listed,
	}, closeListed
}

const tenant = "tenant"

var renderer = harmony.NewRenderer()

// environment is a clock that stands still, ids that count, and a store of its own.
func environment() *turn.Env {
	ids := 0
	now := func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
	return &turn.Env{
		Renderer: renderer, Now: now, Limits: turn.DefaultLimits(),
		NewID: func(prefix string) string {
			ids++
			return prefix + strconv.Itoa(ids)
		},
		Memory: store.NewMemory(store.Options{TextBytes: 1 << 20, TextTTL: time.Hour, ResponseBytes: 64 << 20, ResponseTTL: time.Hour, Now: now}),
	}
}

// post returns decoders that send a body to an endpoint.
func post(path string, endpoints func(s store.Store) []api.Endpoint) func() decoding {
	return func() decoding {
		env := environment()
		endpoint, ids := api.Match(endpoints(env.Memory.(store.Store)), http.MethodPost, path)
		return func(body []byte) (int, any) {
			reserved := 0
			rc := &turn.RequestContext{Env: env, Model: &turn.Model{}, RequestID: "1", Tenant: tenant, Reserve: func(n int) *apierror.Error {
				reserved += n
				return nil
			}}
			outcome := endpoint.Handle(context.Background(), &api.HTTPRequest{IDs: ids, Path: path, Query: url.Values{}, Body: body, Context: rc})
			return reserved, outcome
		}
	}
}

func chatEndpoints(store.Store) []api.Endpoint { return chat.Endpoints() }

func messagesEndpoints(store.Store) []api.Endpoint {
	return (&messages.API{Sealer: newSealer()}).Endpoints()
}

// responsesEndpoints is the Responses API with a store that has a response, a
// conversation and items of 16 KiB, to which requests refer.
func responsesEndpoints(s store.Store) []api.Endpoint {
	ctx := context.Background()
	item := func(id string, bytes int) store.Item {
		return store.Item{ID: id, JSON: []byte(`{"type":"message","id":"` + id + `","status":"completed","role":"user","content":[{"type":"input_text","text":"` + strings.Repeat("qzx jv ", bytes/7) + `"}]}`)}
	}
	for _, err := range []error{
		s.Put(ctx, tenant, &store.Response{ID: "resp_1", Version: 1, Object: []byte(`{"id":"resp_1","object":"response","status":"completed"}`), Input: []store.Item{item("msg_1", 16<<10)}}),
		s.PutConversation(ctx, tenant, &store.Conversation{ID: "conv_1", Metadata: []byte(`{}`)}),
		s.AddItems(ctx, tenant, "conv_1", "", []store.Item{item("msg_2", 16<<10), item("msg_3", 100)}),
	} {
		if err != nil {
			panic(err)
		}
	}
	return (&responses.API{Store: s, Approvals: s, Sealer: newSealer(), Compactor: newSealer(), Chains: responses.NewChains(1 << 20)}).Endpoints()
}

func newSealer() *seal.Sealer {
	s, err := seal.NewSealer([][]byte{make([]byte, 32)}, rand.Reader)
	if err != nil {
		panic(err)
	}
	return s
}

// listedTools is the list of tools of an MCP server, in the prompt of a request that
// names the server.
func listedTools() (t Target, closeServer func()) {
	var listing []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answerMCP(w, r, listing) }))
	log := logrus.New()
	log.SetOutput(io.Discard)
	t = Target{Name: "mcp-listing", Seeds: listingSeeds, Begin: func() decoding {
		client := tools.New(tools.Options{Servers: []tools.Server{{Label: "a", URL: server.URL, Trusted: true, Transport: tools.TransportHTTP}}, Log: log})
		env := environment()
		endpoint, _ := api.Match((&responses.API{Tools: client}).Endpoints(), http.MethodPost, responses.RenderPath)
		return func(body []byte) (int, any) {
			defer client.Close()
			listing = body
			rc := &turn.RequestContext{Env: env, Model: &turn.Model{}, RequestID: "1", Tenant: tenant}
			return 0, endpoint.Handle(context.Background(), &api.HTTPRequest{
				Path: responses.RenderPath, Query: url.Values{}, Context: rc,
				Body: []byte(`{"model":"m","input":"x","store":false,"tools":[{"type":"mcp","server_label":"a","require_approval":"never"}]}`),
			})
		}
	}}
	return t, server.Close
}

// answerMCP answers a request for an MCP server whose tools/list has this result.
func answerMCP(w http.ResponseWriter, r *http.Request, listing []byte) {
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&request) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if request.ID == nil { // a notification
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := []byte(`{}`)
	switch request.Method {
	case "initialize":
		result = []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"a","version":"1"}}`)
	case "tools/list":
		result = listing
	}
	w.Header().Set("content-type", "application/json")
	_, _ = w.Write(bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), request.ID, []byte(`,"result":`), result, []byte(`}`)}, nil))
}
