package stored_test

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A stored response is read, and one that is not stored here may be another
// service's.
func ExampleServer() {
	ctx := context.Background()
	memory := store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour})
	_ = memory.Put(ctx, "", &store.Response{ID: "resp_1", Version: 1, Object: []byte(`{"id":"resp_1","status":"completed"}`)})

	server := &stored.Server{Store: memory}
	for _, path := range []string{"/v1/responses/resp_1", "/v1/responses/resp_2"} {
		endpoint, ids := api.Match(server.Endpoints(), "GET", path)
		outcome := endpoint.Handle(ctx, &api.HTTPRequest{IDs: ids, Path: path, Context: &turn.RequestContext{}})
		fmt.Printf("%s %v\n", outcome.Answer, outcome.Elsewhere != nil)
	}
	// Output:
	// {"id":"resp_1","status":"completed","output":[]} false
	//  true
}
