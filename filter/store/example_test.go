package store_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Data of one tenant cannot be read by another.
func Example() {
	ctx := context.Background()
	s, err := store.Open(ctx, "memory:", store.Options{ResponseTTL: 24 * time.Hour, TextTTL: time.Hour, ResponseBytes: 64 << 20, TextBytes: 16 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	written := &store.Response{ID: "resp_1", Version: 1, Object: []byte(`{"id":"resp_1","status":"completed"}`)}
	if err := s.Put(ctx, "acme", written); err != nil {
		fmt.Println(err)
	}
	if read, err := s.Get(ctx, "acme", "resp_1"); err == nil {
		fmt.Println(string(read.Object))
	}
	_, err = s.Get(ctx, "other", "resp_1")
	fmt.Println(errors.Is(err, store.ErrNotFound))
	// Output:
	// {"id":"resp_1","status":"completed"}
	// true
}
