package stack

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// checkedTransport checks every stream, object and list of the Responses API with
// the rules that all tests share.
type checkedTransport struct {
	t    *testing.T
	next http.RoundTripper
}

// RoundTrip sends a request, and checks the reply while it is read.
func (c checkedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	if check := checkOf(r.Method, r.URL, resp.Header.Get("Content-Type")); check != nil {
		resp.Body = &checkedBody{ReadCloser: resp.Body, t: c.t, check: check}
	}
	return resp, nil
}

// checkOf returns the check of a reply, nil if there is none. A resumed stream is
// only a part: its client compares it with the whole stream.
func checkOf(method string, at *url.URL, contentType string) func([]byte) error {
	below, ofResponses := strings.CutPrefix(at.Path, "/v1/responses")
	below, ofConversations := strings.CutPrefix(below, "/v1/conversations")

	switch {
	case !ofResponses && !ofConversations, below == "/input_tokens", below == "/render",
		at.Query().Has("starting_after"),
		method == http.MethodDelete && (ofResponses || !strings.Contains(below, "/items/")):
		return nil

	case strings.HasPrefix(contentType, "text/event-stream"):
		return func(b []byte) error {
			_, err := responsestest.Stream(b)
			return err
		}

	case below == "/compact":
		return func(b []byte) error {
			_, err := responsestest.Compaction(b)
			return err
		}

	case strings.HasSuffix(below, "items"):
		return responsestest.Items
	case ofResponses:
		return responsestest.Object
	case strings.Contains(below, "/items/") && method == http.MethodGet:
		return responsestest.Item
	}

	return responsestest.Conversation
}

// checkedBody checks the body when it is closed, unless the client has disconnected
// before its end or [DONE].
type checkedBody struct {
	io.ReadCloser
	t     *testing.T
	check func([]byte) error
	read  bytes.Buffer
	whole bool
}

// Read keeps what is read.
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:n])
	// Clients stop at [DONE] and never see the end of the body.
	b.whole = b.whole || errors.Is(err, io.EOF) || bytes.HasSuffix(b.read.Bytes(), []byte("\ndata: [DONE]\n\n"))
	return n, err
}

// Close checks what was read.
func (b *checkedBody) Close() error {
	if b.whole {
		if err := b.check(b.read.Bytes()); err != nil {
			b.t.Errorf("%v, in\n%s", err, &b.read)
		}
	}
	return b.ReadCloser.Close()
}

// CheckedOpenAI returns a client whose Responses API replies are checked.
func (d *Dataplane) CheckedOpenAI(t *testing.T, o ...option.RequestOption) openai.Client {
	return d.Openai(append(o, option.WithHTTPClient(&http.Client{Transport: checkedTransport{
		t,
		d.Client.Transport,
	}}))...)
}

// CheckedURL returns the URL of a proxy that checks the replies of the data plane,
// for external clients.
func (d *Dataplane) CheckedURL(t *testing.T) string {
	t.Helper()
	target, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     checkedTransport{t, d.Client.Transport},
		FlushInterval: -1,
	}
	server := httptest.NewServer(FullDuplex(proxy.ServeHTTP))
	t.Cleanup(server.Close)
	return server.URL
}

// responder creates a response, streamed or not.
type responder func(*testing.T, openai.Client, responses.ResponseNewParams, ...option.RequestOption) *responses.Response

// Responders are the two ways to create a response.
var Responders = map[string]responder{"whole": RespondWhole, "streamed": RespondStreamed}

// RespondWhole creates a response as one object.
func RespondWhole(t *testing.T, c openai.Client, p responses.ResponseNewParams,
	o ...option.RequestOption,
) *responses.Response {
	t.Helper()
	r, err := c.Responses.New(t.Context(), p, o...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// RespondStreamed returns the response of the last event.
func RespondStreamed(t *testing.T, c openai.Client, p responses.ResponseNewParams,
	o ...option.RequestOption,
) *responses.Response {
	t.Helper()
	stream := c.Responses.NewStreaming(t.Context(), p, o...)
	defer func() { _ = stream.Close() }()

	var text strings.Builder
	var last *responses.Response
	for stream.Next() {
		switch e := stream.Current(); e.Type {
		case "response.output_text.delta":
			text.WriteString(e.Delta)
		case "response.completed", "response.incomplete", "response.failed":
			last = &e.Response
		}
	}

	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if last == nil {
		t.Fatal("the stream has no last event")
	}

	// A client may use either.
	if text.String() != last.OutputText() {
		t.Errorf("the deltas are %q, the text %q", &text, last.OutputText())
	}

	return last
}

// Item is an item of a response without ids, which differ in each reply.
type Item struct{ Type, Status, Phase, Namespace, Name, Text, Summary string }

// ItemsOf returns the items of a response.
func ItemsOf(r *responses.Response) []Item {
	items := make([]Item, 0, len(r.Output))
	for _, o := range r.Output {
		raw := gjson.Parse(o.RawJSON())
		items = append(items, Item{
			Type: o.Type, Status: o.Status, Phase: string(o.Phase), Namespace: o.Namespace, Name: o.Name,
			Text:    raw.Get("content.0.text").Str + raw.Get("arguments").Str + raw.Get("input").Str,
			Summary: raw.Get("summary.0.text").Str,
		})
	}
	return items
}

// Asking returns a request with one user message.
func Asking(model, text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
	}
}

// InputItems returns an input of items.
func InputItems(items ...responses.ResponseInputItemUnionParam) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfInputItemList: items}
}

// UserItem returns a message of the user as an item.
func UserItem(text string) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser)
}

// RawItem returns an item from its JSON, for example one of a response.
func RawItem(raw string) responses.ResponseInputItemUnionParam {
	// The SDK's types lose members that they do not know, such as those of a newer API.
	return param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(raw))
}

// AsInput returns the output of a response as input of the next request.
func AsInput(r *responses.Response) []responses.ResponseInputItemUnionParam {
	items := make([]responses.ResponseInputItemUnionParam, 0, len(r.Output))
	for _, o := range r.Output {
		items = append(items, RawItem(o.RawJSON()))
	}
	return items
}

// CallOf returns the last item of a response, which must be a call.
func CallOf(t *testing.T, r *responses.Response) *responses.ResponseOutputItemUnion {
	t.Helper()
	if len(r.Output) == 0 || r.Output[len(r.Output)-1].CallID == "" {
		t.Fatalf("the response does not end with a call: %s", r.RawJSON())
	}
	return &r.Output[len(r.Output)-1]
}

// OutputOf returns the output of a call.
func OutputOf(call *responses.ResponseOutputItemUnion, text string) responses.ResponseInputItemUnionParam {
	if call.Type == "custom_tool_call" {
		return responses.ResponseInputItemParamOfCustomToolCallOutput(call.CallID, text)
	}
	output := responses.ResponseInputItemParamOfFunctionCallOutput(text)
	output.OfFunctionCallOutput.CallID = openai.String(call.CallID)
	return output
}

// Respond posts a request with one user message and reads the reply. more has
// further JSON members, each after a comma.
func (d *Dataplane) Respond(t *testing.T, model, text, more string, headers ...string) (*http.Response, string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"model": model, "input": text})
	if err != nil {
		t.Fatal(err)
	}

	// The members go in before the bracket that ends the object.
	body = append(append(body[:len(body)-1], more...), '}')
	resp := d.Do(t, http.MethodPost, "/v1/responses", "application/json", bytes.NewReader(body), headers...)
	return resp, ReadText(t, resp)
}

// WantError checks that err is an API error with these values.
func WantError(t *testing.T, what string, err error, status int, code, param string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v is not an API error", what, err)
		return
	}
	if e.StatusCode != status || e.Code != code || e.Param != param {
		t.Errorf(
			"%s: status %d, code %q, param %q, want %d, %q, %q: %s",
			what, e.StatusCode, e.Code, e.Param, status, code, param, e.Message)
	}
}

// NotFound is an upstream's reply for responses that it does not have.
func NotFound(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"error":{"message":"not `+
		`here","type":"invalid_request_error","param":null,"code":"upstream"}}`)
}

// SealKey is a key for encrypted reasoning.
const SealKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// WantStatus checks the status of an API error.
func WantStatus(t *testing.T, err error, status int) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status {
		t.Errorf("%v, want status %d", err, status)
	}
}

// SameJSON compares two JSON texts without the order of members.
func SameJSON(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(gjson.Parse(want).Value(), gjson.Parse(got).Value()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var cityParameters = map[string]any{
	"type":       "object",
	"properties": map[string]any{"city": map[string]any{"type": "string"}},
	"required":   []string{"city"},
}

// ResponseTools has a tool of each kind.
var ResponseTools = []responses.ToolUnionParam{
	responses.ToolParamOfFunction("get_weather", cityParameters, false),
	{OfCustom: &responses.CustomToolParam{Name: "shell", Description: openai.String("Runs a command.")}},
	responses.ToolParamOfNamespace("Places of the world.", "places", []responses.NamespaceToolToolUnionParam{
		{OfFunction: &responses.NamespaceToolToolFunctionParam{Name: "find", Parameters: cityParameters}},
	}),
}
