package render

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// stateless are the endpoints of the APIs without a store and tools.
var stateless = slices.Concat(chat.Endpoints(), (&responses.API{}).Endpoints(), (&messages.API{}).Endpoints())

// service is the render service, as the command has it.
var service = slices.Concat(Rendering(stateless), Endpoints(Options{Stateless: stateless}))

// answer is what an endpoint answers: JSON, or a stream's events.
func answer(t testing.TB, endpoints []api.Endpoint, path, body string, rc *turn.RequestContext) (string, *apierror.Error) {
	t.Helper()
	e, _ := api.Match(endpoints, http.MethodPost, path)
	if e == nil {
		t.Fatalf("no endpoint %s", path)
	}
	o := e.Handle(context.Background(), &api.HTTPRequest{Path: path, Body: []byte(body), Context: rc})
	if o.Err != nil {
		return "", o.Err
	}
	if o.Stream == nil {
		if !json.Valid(o.Answer) {
			t.Fatalf("%s answers %s", path, o.Answer)
		}
		return string(o.Answer), nil
	}
	reserved := 0
	sse, end, err := o.Stream.Next(context.Background(), func(n int) *apierror.Error {
		reserved += n
		return nil
	})
	if err != nil || !end || reserved != len(sse) {
		t.Fatalf("a stream of %d bytes with room for %d: %v", len(sse), reserved, err)
	}
	return string(sse), nil
}

// ask is answer without an error.
func ask(t testing.TB, path, body string) string {
	t.Helper()
	got, err := answer(t, service, path, body, apitest.NewContext())
	if err != nil {
		t.Fatalf("%s of %s: %v (param %q)", path, body, err, err.Param)
	}
	return got
}

const weather = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`

// requests are a request of each API with the same tool, and members of their own.
var requests = map[string]string{
	"/v1/chat/completions": `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"get_weather","parameters":` + weather + `}}]}`,
	"/v1/responses":        `{"model":"gpt-oss-20b","input":"Hi","tools":[{"type":"function","name":"get_weather","parameters":` + weather + `}]}`,
	"/v1/messages":         `{"model":"gpt-oss-20b","max_tokens":2000,"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"get_weather","input_schema":` + weather + `}],"thinking":{"type":"enabled","budget_tokens":1024}}`,
}

// kindOf returns the kind of an API.
func kindOf(path string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.path == path })]
}

// generated is an answer of vLLM's generate endpoint, or a chunk of one, with outputs.
func generated(outputs ...apitest.Output) string {
	var b strings.Builder
	b.WriteString(`{"request_id":"chatcmpl-1","created":1795262400,"choices":[`)
	for i, o := range outputs {
		if i > 0 {
			b.WriteByte(',')
		}
		finish := "null"
		if o.Finish != engine.FinishNone {
			finish = strconv.Quote(string(o.Finish))
		}
		ids := strings.ReplaceAll(fmt.Sprint(o.Tokens), " ", ",")
		fmt.Fprintf(&b, `{"index":%d,"token_ids":%s,"finish_reason":%s,"stop_reason":null,"logprobs":null}`, o.Index, ids, finish)
	}
	b.WriteString("]}")
	return b.String()
}

// whole is the body that derenders outputs, with more members.
func whole(path, request string, outputs []apitest.Output, members string) string {
	return `{"model":"gpt-oss-20b","generate_response":` + generated(outputs...) + `,"` + kindOf(path).request + `":` + request + members + `}`
}

// chunked derenders chunks one by one, and returns the answers.
func chunked(t testing.TB, path, request string, chunks []engine.Chunk) []gjson.Result {
	t.Helper()
	state := "null"
	answers := make([]gjson.Result, 0, len(chunks))
	for _, c := range chunks {
		body := `{"stream":true,"generate_chunk":` + generated(apitest.Output{Index: c.Index, Tokens: c.Tokens, Finish: c.Finish}) +
			`,"stream_state":` + state + `,"` + kindOf(path).request + `":` + request + `}`
		got := gjson.Parse(ask(t, path+derenderSuffix, body))
		state = got.Get("stream_state").Raw
		answers = append(answers, got)
	}
	return answers
}

// filtered is what the filter makes of chunks of the same request.
func filtered(t testing.TB, path, request string, stream bool, mode api.Mode, chunks []engine.Chunk) string {
	t.Helper()
	rc := apitest.NewContext()
	rc.NewID = (&idSource{seed: "chatcmpl-1"}).next
	rc.RequestID = strings.TrimPrefix("chatcmpl-1", kindOf(path).prefix)
	rc.Memory = nil
	e, _ := api.Match(stateless, http.MethodPost, path)
	o := e.Handle(context.Background(), &api.HTTPRequest{Path: path, Body: []byte(apitest.With(t, request, "stream", stream)), Context: rc})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	return apitest.Play(t, o.Request, mode, chunks)
}

// tokensOf are the ids of a list in an answer.
func tokensOf(v gjson.Result) []harmony.Token {
	ids := make([]harmony.Token, 0, len(v.Array()))
	for _, id := range v.Array() {
		ids = append(ids, harmony.Token(id.Uint()))
	}
	return ids
}

// reserveAll has room for everything, and counts it.
func reserveAll(n *int) func(int) *apierror.Error {
	return func(bytes int) *apierror.Error {
		*n += bytes
		return nil
	}
}

// askLate tokenizes within a context.
func askLate(ctx context.Context, body string) *apierror.Error {
	e, _ := api.Match(service, http.MethodPost, TokenizePath)
	return e.Handle(ctx, &api.HTTPRequest{Path: TokenizePath, Body: []byte(body), Context: apitest.NewContext()}).Err
}
