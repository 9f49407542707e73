package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// response makes a response that continues another, with one item each way.
func response(id, previous string) *Response {
	return &Response{
		ID: id, Previous: previous, Object: []byte(`{"id":"` + id + `"}`),
		Input:  []Item{{"in_" + id, []byte(`{"id":"in_` + id + `"}`)}},
		Output: []Item{{"out_" + id, []byte(`{"id":"out_` + id + `"}`)}},
	}
}

func mustPut(t *testing.T, s Responses, tenant string, responses ...*Response) {
	t.Helper()
	for _, r := range responses {
		if err := s.Put(context.Background(), tenant, r); err != nil {
			t.Fatalf("Put %s: %v", r.ID, err)
		}
	}
}

// TestResponses is what every store of responses does.
func TestResponses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, s := range map[string]Responses{"memory": NewMemoryResponses(1<<20, time.Hour, time.Now)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustPut(t, s, "a", response("1", ""), response("2", "1"), response("3", "2"), response("3b", "2"))
			mustPut(t, s, "b", response("1", "none"))

			got, err := s.Get(ctx, "a", "2")
			if diff := cmp.Diff(response("2", "1"), got); diff != "" || err != nil {
				t.Errorf("Get: %v\n%s", err, diff)
			}
			chain, err := s.Chain(ctx, "a", "3b")
			if diff := cmp.Diff([]*Response{response("1", ""), response("2", "1"), response("3b", "2")}, chain); diff != "" || err != nil {
				t.Errorf("Chain: %v\n%s", err, diff)
			}
			items, err := s.Items(ctx, "a", []string{"out_1", "in_3", "in_9"})
			if diff := cmp.Diff(map[string]Item{"out_1": response("1", "").Output[0], "in_3": response("3", "").Input[0]}, items); diff != "" || err != nil {
				t.Errorf("Items: %v\n%s", err, diff)
			}

			for what, err := range map[string]error{
				"Get of another tenant":    second(s.Get(ctx, "b", "2")),
				"Get":                      second(s.Get(ctx, "a", "9")),
				"Chain of another tenant":  second(s.Chain(ctx, "b", "2")),
				"Chain that is broken":     second(s.Chain(ctx, "b", "1")),
				"Delete":                   s.Delete(ctx, "a", "9"),
				"Delete of another tenant": s.Delete(ctx, "c", "1"),
			} {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if items, err := s.Items(ctx, "c", []string{"out_1"}); len(items) > 0 || err != nil {
				t.Errorf("Items of another tenant: %v, %v", items, err)
			}

			changed := response("3", "2")
			changed.Input[0].ID = "in_3x"
			mustPut(t, s, "a", changed)
			if items, _ := s.Items(ctx, "a", []string{"in_3", "in_3x"}); len(items) != 1 {
				t.Errorf("Items of a response that was written anew: %v", items)
			}
			copied := response("4", "")
			copied.Input = response("1", "").Output // sent again
			mustPut(t, s, "a", copied)
			if err := s.Delete(ctx, "a", "1"); err != nil {
				t.Fatal(err)
			}
			if items, _ := s.Items(ctx, "a", []string{"in_1", "out_1"}); len(items) != 1 {
				t.Errorf("Items after Delete: %v", items)
			}
			if err := second(s.Chain(ctx, "a", "3")); !errors.Is(err, ErrNotFound) {
				t.Errorf("Chain after Delete of its first: %v", err)
			}
			if _, err := s.Get(ctx, "b", "1"); err != nil {
				t.Errorf("Delete of one tenant's response took another's: %v", err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestMemoryResponsesAge(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(0, 0)}
	s := NewMemoryResponses(1<<20, time.Hour, c.now)
	mustPut(t, s, "", response("1", ""), response("2", "1"), response("alone", ""))
	c.Time = c.Add(50 * time.Minute)
	if _, err := s.Chain(context.Background(), "", "2"); err != nil {
		t.Fatal(err)
	}
	c.Time = c.Add(50 * time.Minute)
	if _, err := s.Chain(context.Background(), "", "2"); err != nil {
		t.Errorf("a chain that goes on is forgotten: %v", err)
	}
	if _, err := s.Get(context.Background(), "", "alone"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an old response: %v", err)
	}
	if items, _ := s.Items(context.Background(), "", []string{"in_alone"}); len(items) > 0 {
		t.Errorf("items of an old response: %v", items)
	}
}

func TestMemoryResponsesBound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const limit = 100_000
	s := NewMemoryResponses(limit, time.Hour, time.Now)
	for i := range 1000 {
		mustPut(t, s, "", response(strconv.Itoa(i), ""))
	}
	if s.Bytes() > limit || len(s.holders) != 2*len(s.responses.entries) {
		t.Errorf("%d bytes, %d responses, %d items", s.Bytes(), len(s.responses.entries), len(s.holders))
	}
	if _, err := s.Get(ctx, "", "999"); err != nil {
		t.Error("the newest is gone")
	}
	large := response("large", "")
	large.Object = []byte(strings.Repeat("x", limit))
	if err := s.Put(ctx, "", large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a response larger than the store: %v", err)
	}
	if err := NewMemoryResponses(0, time.Hour, time.Now).Put(ctx, "", response("1", "")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a store of 0 bytes: %v", err)
	}
	for i := range 1000 {
		_ = s.Delete(ctx, "", strconv.Itoa(i))
	}
	if s.Bytes() != 0 || len(s.holders) != 0 {
		t.Errorf("%d bytes, %d items are left", s.Bytes(), len(s.holders))
	}
}

func TestMemoryResponsesConcurrent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := NewMemoryResponses(1<<15, time.Hour, time.Now)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for j := range 500 {
				id := strconv.Itoa(j % 40)
				if err := s.Put(ctx, "", response(id, strconv.Itoa(j%40-1))); err != nil {
					t.Error(err)
				}
				if r, err := s.Get(ctx, "", id); err == nil && r.ID != id {
					t.Errorf("Get %s gives %s", id, r.ID)
				}
				_, _ = s.Chain(ctx, "", id)
				_, _ = s.Items(ctx, "", []string{"in_" + id})
				_ = s.Delete(ctx, "", id)
			}
		})
	}
	wg.Wait()
}
