package read

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// TestReferencesRead has a store read for references to many items, which takes steps of
// the request, and few reads.
func TestReferencesRead(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Tenant = "a"
	memory := store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, Now: rc.Now})
	made := &store.Response{ID: "resp_1", Version: 1, Object: []byte(`{"id":"resp_1"}`)}
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = "msg_" + strconv.Itoa(i)
		made.Input = append(made.Input, store.Item{ID: ids[i], JSON: []byte(`{"type":"message","role":"user","content":"xxxxxx","id":"` + ids[i] + `"}`)})
	}
	if err := memory.Put(t.Context(), rc.Tenant, made); err != nil {
		t.Fatal(err)
	}

	counted := &referredStore{Store: memory, steps: 1}
	items := &itemReader{reader: &Reader{Store: counted}, rc: rc}
	ctx := work.New(t.Context(), 100).Context()

	found, apiErr := items.fetch(ctx, ids)
	if apiErr != nil || len(found) != len(ids) || counted.reads > 8 {
		t.Errorf("%d items are read in %d reads: %v", len(found), counted.reads, apiErr)
	}
	counted.steps = 100
	if _, apiErr = items.fetch(ctx, ids); apiErr == nil || apiErr.Status != http.StatusBadRequest || apiErr.Code != turn.CodeTooCostly {
		t.Errorf("beyond the steps: %v", apiErr)
	}
}

// referredStore counts the reads of items, which are refused where the request does not have
// so many steps.
type referredStore struct {
	store.Store
	steps int
	reads int
}

func (s *referredStore) Items(ctx context.Context, tenant string, ids []string) (map[string]store.Item, error) {
	s.reads++
	if err := work.From(ctx).Spend(s.steps); err != nil {
		return nil, fmt.Errorf("read items: %w", err)
	}
	return s.Store.Items(ctx, tenant, ids)
}
