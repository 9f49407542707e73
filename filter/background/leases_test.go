package background

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// The loss of a response that another process has ended is reported, once.
func TestLeases(t *testing.T) {
	t.Parallel()
	m := store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, TextTTL: time.Hour})
	l := newLeases(m, "me")
	lost := make(chan string, 10)
	for _, id := range []string{"kept", "canceled", "deleted"} {
		if err := m.Put(t.Context(), "a", &store.Response{ID: id, Version: 1, Object: []byte("{}"), Live: true, Owner: "me", Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		l.add(store.Key{Tenant: "a", ID: id}, func() { lost <- id })
	}
	if err := m.Put(t.Context(), "a", &store.Response{ID: "canceled", Version: 2, Object: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(t.Context(), "a", "deleted"); err != nil {
		t.Fatal(err)
	}
	l.renew(t.Context())
	l.renew(t.Context())
	reported := map[string]int{<-lost: 1}
	reported[<-lost]++
	if diff := cmp.Diff(map[string]int{"canceled": 1, "deleted": 1}, reported); diff != "" || len(lost) > 0 {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	for _, id := range []string{"kept", "canceled", "deleted"} {
		l.drop(store.Key{Tenant: "a", ID: id})
	}
	l.done.Wait()
}
