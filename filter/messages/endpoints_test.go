package messages

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	endpoints := newAPI(t, 1).Endpoints()
	for _, c := range []struct{ path, body, want string }{
		{Path, ask(``), "request"},
		{Path, `{}`, "error"},
		{CountPath, ask(``), "answer"},
		{CountPath, `{}`, "error"},
		{RenderPath, ask(``), "answer"},
		{RenderPath, `{}`, "error"},
	} {
		e, _ := api.Match(endpoints, http.MethodPost, c.path)
		if e == nil {
			t.Fatalf("no endpoint %s", c.path)
		}
		if _, object := e.Error(apierror.Invalid("model", "x"), "r"); gjson.GetBytes(object, "type").Str != "error" {
			t.Errorf("%s: an error is %s", c.path, object)
		}
		o := e.Handle(context.Background(), &api.HTTPRequest{Path: c.path, Body: []byte(c.body), Context: apitest.NewContext()})
		var got []string
		if o.Request != nil {
			got = append(got, "request")
		}
		if o.Answer != nil {
			got = append(got, "answer")
		}
		if o.Err != nil {
			got = append(got, "error")
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.path, c.body, got, c.want)
		}
	}
	if e, _ := api.Match(endpoints, http.MethodGet, Path); e != nil {
		t.Error("an endpoint for GET")
	}
}

// TestCount shows that the count and the rendered prompt of every golden request are
// those of the prompt of its model call, also beyond the context.
func TestCount(t *testing.T) {
	t.Parallel()
	for _, file := range apitest.GoldenRequests(t) {
		body := apitest.ReadFile(t, file)
		prompt := mustDecode(t, body).Engine().Prompt
		rc := apitest.NewContext()
		rc.Model.ContextLength = 10
		counted, err := newAPI(t, 1).CountTokens(context.Background(), []byte(body), rc)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want := `{"input_tokens":` + strconv.Itoa(len(prompt)) + `}`; string(counted) != want {
			t.Errorf("%s: %s, want %s", file, counted, want)
		}
		rendered, err := newAPI(t, 1).Render(context.Background(), []byte(body), apitest.NewContext())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		apitest.Rendered(t, string(rendered), prompt)
	}
}
