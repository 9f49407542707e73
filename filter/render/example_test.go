package render_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/render"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A text becomes tokens.
func Example() {
	endpoints := render.Endpoints(render.Options{Stateless: chat.Endpoints()})
	e, _ := api.Match(endpoints, http.MethodPost, render.TokenizePath)
	outcome := e.Handle(context.Background(), &api.HTTPRequest{
		Path:    render.TokenizePath,
		Body:    []byte(`{"prompt": "Hello, world!", "return_token_strs": true}`),
		Context: &turn.RequestContext{Model: &turn.Model{}},
	})
	fmt.Println(string(outcome.Answer))
	// Output: {"count":4,"max_model_len":131072,"tokens":[13225,11,2375,0],"token_strs":["Hello",",","Ġworld","!"]}
}
