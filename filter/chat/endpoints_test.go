package chat

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, body, want string }{
		{Path, ask(``), "request"},
		{Path, `{}`, "error"},
		{RenderPath, ask(``), "answer"},
		{RenderPath, `{}`, "error"},
	} {
		e, _ := api.Match(Endpoints(), http.MethodPost, c.path)
		if e == nil {
			t.Fatalf("no endpoint %s", c.path)
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
	if e, _ := api.Match(Endpoints(), http.MethodGet, Path); e != nil {
		t.Error("an endpoint for GET")
	}
}
