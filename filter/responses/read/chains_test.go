package read

import (
	"context"
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// TestChainIsRememberedLater shows that a chain is remembered after the handling of its
// request, with whose context the request's account ends.
func TestChainIsRememberedLater(t *testing.T) {
	t.Parallel()
	handling, end := context.WithCancel(t.Context())
	rc := apitest.NewContext()
	rc.Work = work.New(handling, work.PerRequest)
	end()
	a := &Reader{Chains: NewChains(1 << 20)}
	a.remember(t.Context(), rc, nil, &store.Response{ID: "resp_1", Version: 1, Input: []store.Item{{ID: "msg_1", JSON: []byte(`{"id":"msg_1","type":"message","role":"user","content":"Hi"}`)}}})
	if a.Chains.get(rc.Tenant, "resp_1") == nil {
		t.Error("the chain is not remembered")
	}
}

// TestChainsBounded shows that what is remembered keeps to its bound.
func TestChainsBounded(t *testing.T) {
	t.Parallel()
	a, rc := &Reader{Chains: NewChains(10 << 10)}, apitest.NewContext()
	remember := func(i int) {
		id := strconv.Itoa(i)
		message := store.Item{ID: "msg_" + id, JSON: []byte(`{"id":"msg_` + id + `","type":"message","role":"user","content":"Hi"}`)}
		a.remember(t.Context(), rc, nil, &store.Response{ID: "resp_" + id, Version: 1, Input: []store.Item{message}})
	}
	for i := range 50 {
		remember(i)
	}
	if n := len(a.Chains.chains); n < 2 || n > 20 || a.Chains.bytes > a.Chains.limit || a.Chains.recent.Len() != n {
		t.Errorf("%d chains in %d bytes", n, a.Chains.bytes)
	}

	a.Chains = NewChains(100)
	remember(0)
	if len(a.Chains.chains) != 0 || a.Chains.bytes != 0 {
		t.Errorf("a chain larger than the bound: %d bytes", a.Chains.bytes)
	}
}

// TestLongerChainReplaces shows that a chain takes the place of the one that it continues.
func TestLongerChainReplaces(t *testing.T) {
	t.Parallel()
	a, rc := &Reader{Chains: NewChains(1 << 20)}, apitest.NewContext()
	items := []store.Item{{ID: "msg_1", JSON: []byte(`{"id":"msg_1","type":"message","role":"user","content":"Hi"}`)}}
	a.remember(t.Context(), rc, nil, &store.Response{ID: "resp_1", Version: 1, Input: items})
	first := a.Chains.get(rc.Tenant, "resp_1")
	a.remember(t.Context(), rc, first, &store.Response{ID: "resp_2", Previous: "resp_1", Version: 1, Input: items})

	if a.Chains.get(rc.Tenant, "resp_2") == nil || len(a.Chains.chains) != 1 || a.Chains.bytes <= first.memory() {
		t.Errorf("%d chains in %d bytes", len(a.Chains.chains), a.Chains.bytes)
	}
}
