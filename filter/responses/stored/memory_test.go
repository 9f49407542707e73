package stored_test

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// largeItems are items of a number of bytes each.
func largeItems(n, bytes int) (items []store.Item) {
	for i := range n {
		id := fmt.Sprint("msg_", i)
		items = append(items, store.Item{ID: id, JSON: []byte(`{"type":"message","id":"` + id + `","role":"user","content":[{"type":"input_text","text":"` + strings.Repeat("x", bytes) + `"}]}`)})
	}
	return items
}

// TestAnswersAreReservedFirst shows that no stored answer is made, or is larger, than what was
// taken, beside what the store has taken for what it read.
func TestAnswersAreReservedFirst(t *testing.T) { // not parallel: allocations are counted
	const size = 2 << 20
	ctx := t.Context()
	memory := store.NewMemory(store.Options{ResponseBytes: 64 << 20, ResponseTTL: time.Hour})
	items := largeItems(8, size/8)
	for _, err := range []error{
		memory.Put(ctx, "", &store.Response{ID: "resp_1", Version: 1, Object: []byte(`{"id":"resp_1","status":"completed"}`), Input: items, Output: largeItems(8, size/8)}),
		memory.PutConversation(ctx, "", &store.Conversation{ID: "conv_1", Metadata: []byte(`{}`)}),
		memory.AddItems(ctx, "", "conv_1", "", items),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	server := &stored.Server{Store: memory}
	get := func(path string, reserve func(int) *apierror.Error) (o api.Outcome, allocated int) {
		e, ids := api.Match(server.Endpoints(), http.MethodGet, path)
		ctx := store.WithRoom(ctx, func(n int) error {
			if err := reserve(n); err != nil {
				return err
			}
			return nil
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o = e.Handle(ctx, &api.HTTPRequest{IDs: ids, Path: path, Query: url.Values{"limit": {"100"}}, Context: &turn.RequestContext{Reserve: reserve}})
		runtime.ReadMemStats(&after)
		return o, int(after.TotalAlloc - before.TotalAlloc)
	}
	full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "full")
	for _, path := range []string{"/v1/responses/resp_1", "/v1/responses/resp_1/input_items", "/v1/conversations/conv_1/items", "/v1/conversations/conv_1/items/msg_1"} {
		t.Run(path, func(t *testing.T) {
			o, allocated := get(path, func(int) *apierror.Error { return full })
			if o.Err != full || allocated > 64<<10 {
				t.Errorf("%v; %d bytes are allocated, without room", o.Err, allocated)
			}
			reserved := 0
			o, allocated = get(path, func(n int) *apierror.Error {
				reserved += n
				return nil
			})
			if o.Err != nil || len(o.Answer) < size/8 || reserved < 2*len(o.Answer) || allocated > reserved+64<<10 {
				t.Errorf("%v: an answer of %d bytes, %d allocated, for %d", o.Err, len(o.Answer), allocated, reserved)
			}
		})
	}
}

// TestFollowerHoldsWhatItReturns shows that a follower takes room for what it reads and
// what it makes of it, and returns the former.
func TestFollowerHoldsWhatItReturns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	memory := store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour})
	events := []byte("event: a\n\n")
	for _, err := range []error{
		memory.Put(ctx, "", &store.Response{ID: "r", Version: 1, Live: true, Owner: "me", Lease: time.Minute, Object: []byte(`{"id":"r","status":"in_progress"}`)}),
		memory.Append(ctx, "", "r", "me", store.Batch{SSE: events}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var taken []int
	sse, _, err := stored.NewFollower(memory, store.Key{ID: "r"}).Next(ctx, func(n int) *apierror.Error {
		taken = append(taken, n)
		return nil
	})
	if diff := cmp.Diff([]int{len(events), len(events), -len(events)}, taken); err != nil || len(sse) != len(events) || diff != "" {
		t.Errorf("%q, %v\n%s", sse, err, diff)
	}
}
