package responses

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func mustDecode(t testing.TB, body string) *write.Request {
	t.Helper()
	return testAPI.MustDecode(t, body).(*write.Request)
}

// decode makes a request of a body, as POST /v1/responses does.
func (a *API) decode(body []byte, rc *turn.RequestContext) (*write.Request, *apierror.Error) {
	return requestOf(a.endpoints().create(context.Background(), &api.HTTPRequest{Body: body, Context: rc}))
}

// newReply begins the reply to a request.
func newReply(r *write.Request, m api.Mode) *write.Reply { return r.NewReply(m).(*write.Reply) }

// requestOf is the request that an outcome has.
func requestOf(o api.Outcome) (*write.Request, *apierror.Error) {
	if o.Err != nil {
		return nil, o.Err
	}
	return o.Request.(*write.Request), nil
}

// outcome is what an endpoint makes of a request.
func (a *API) outcome(method, target string, body []byte, rc *turn.RequestContext) api.Outcome {
	path, query, _ := strings.Cut(target, "?")
	endpoint, ids := api.Match(a.Endpoints(), method, path)
	if endpoint == nil {
		return api.Refused(apierror.New(http.StatusNotImplemented, "", "", "not served"))
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return api.Refused(apierror.Invalid("", "not a query"))
	}
	return endpoint.Handle(context.Background(), &api.HTTPRequest{IDs: ids, Path: path, Query: values, Body: body, Context: rc})
}

// serve is the answer to a request that needs no model.
func (a *API) serve(method, target string, body []byte, rc *turn.RequestContext) ([]byte, *apierror.Error) {
	o := a.outcome(method, target, body, rc)
	if o.Elsewhere != nil {
		return o.Answer, o.Elsewhere
	}
	return o.Answer, o.Err
}

// run plays chunks into a reply, checks it, and returns all its bytes.
func run(t testing.TB, request *write.Request, chunks []engine.Chunk) string {
	t.Helper()
	out := apitest.Play(t, request, api.SingleCall, chunks)
	final(t, request, out)
	return out
}

// mustEnd ends a reply that has no error.
func mustEnd(t testing.TB, r *write.Reply, out []byte) []byte {
	t.Helper()
	out, err := apitest.End(t, r, out)
	if err != nil {
		t.Fatalf("End: %v", err)
	}
	return out
}

// fail makes a reply fail, and ends it.
func fail(t testing.TB, r *write.Reply, out []byte, err *apierror.Error) []byte {
	t.Helper()
	return mustEnd(t, r, r.Fail(out, err))
}

// cancel ends a reply whose client has left.
func cancel(t testing.TB, r *write.Reply) {
	t.Helper()
	for _, job := range r.Cancel() {
		if _, err := job.Do(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// final checks a whole reply or a stream, and returns its response object.
func final(t testing.TB, request *write.Request, reply string) string {
	t.Helper()
	return finalObject(t, request.Options.Stream, reply)
}

func finalObject(t testing.TB, stream bool, reply string) string {
	t.Helper()
	object := []byte(reply)
	if stream {
		var err error
		if object, err = responsestest.Stream(object); err != nil {
			t.Fatalf("%v\n%s", err, reply)
		}
	}
	if err := responsestest.Object(object); err != nil {
		t.Fatalf("%v\n%s", err, object)
	}
	return string(object)
}

// reply is the response object after an output that comes in one chunk.
func reply(t testing.TB, members, text string, finish engine.Finish) gjson.Result {
	t.Helper()
	whole := run(t, mustDecode(t, ask(members)), []engine.Chunk{{Tokens: apitest.Tokens(text), Finish: finish}})
	streamed := mustDecode(t, ask(members+`,"stream":true`))
	if got := final(t, streamed, run(t, streamed, apitest.Output{Tokens: apitest.Tokens(text), Finish: finish}.Chunks(apitest.Size(1)))); got != whole {
		t.Fatalf("stream and whole reply differ:\n%s\n%s", got, whole)
	}
	return gjson.Parse(whole)
}

func ask(members string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","input":"Hi"%s}`, members)
}

func askItems(items string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","input":[%s]}`, items)
}

const (
	weatherTool = `,"tools":[{"type":"function",` + apitest.WeatherTool + `}]`
	mixedTools  = `,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}},
		{"type":"custom","name":"apply_patch","description":"Edit files."},
		{"type":"namespace","name":"mcp__fs","description":"Files.","tools":[{"type":"function","name":"read","strict":false,"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}]},
		{"type":"web_search","external_web_access":true}]`
)
