package responses

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// chain is what a stored response and all that it continues come to.
type chain struct {
	tenant string
	id     string
	prefix *turn.Prefix
	own    int // how many of the items are the response's own
	stored int // bytes of the items in the store
	facts  facts

	// What the store said when the chain was read. That of a response that
	// continues none and was written here has no epoch yet: nothing that
	// can be deleted or overwritten comes before it.
	head     store.Head
	newEpoch bool
}

// holds tells whether the chain is what the store has now.
func (c *chain) holds(now store.Head) bool {
	return c.head.Version == now.Version && (c.newEpoch || c.head.Epoch == now.Epoch)
}

// at is the chain as the store has it now.
func (c *chain) at(now store.Head) *chain {
	return &chain{tenant: c.tenant, id: c.id, prefix: c.prefix, own: c.own, stored: c.stored, facts: c.facts, head: now}
}

// Chains remembers in the memory of the process what the last responses of
// chains come to. The store tells with each turn whether that still holds, so
// that nothing else need be read and rendered again. It is safe for concurrent
// use.
type Chains struct {
	limit int64

	mu     sync.Mutex
	bytes  int64
	chains map[store.Key]*list.Element // of *chain
	recent list.List                   // used last in front
}

// NewChains makes a memory of at most limit bytes, in which what was used
// longest ago makes room.
func NewChains(limit int64) *Chains {
	return &Chains{limit: limit, chains: map[store.Key]*list.Element{}}
}

// chainOverhead is roughly what a chain takes beside its prefix.
const chainOverhead = 512

func (c *chain) bytes() int64 {
	return chainOverhead + int64(2*(len(c.tenant)+len(c.id))) + c.prefix.Bytes() + c.facts.bytes()
}

// get gives the chain that ends with a response, nil if it is not remembered.
func (m *Chains) get(tenant, id string) *chain {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.chains[store.Key{Tenant: tenant, ID: id}]
	if e == nil {
		return nil
	}
	m.recent.MoveToFront(e)
	return e.Value.(*chain)
}

// put remembers a chain, in place of the shorter one that it goes on from: a
// conversation rarely goes back, and the longer one has the tokens of both.
func (m *Chains) put(c, before *chain) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before != nil {
		m.remove(store.Key{Tenant: before.tenant, ID: before.id})
	}
	key := store.Key{Tenant: c.tenant, ID: c.id}
	m.remove(key)
	if c.bytes() > m.limit {
		return
	}
	m.chains[key] = m.recent.PushFront(c)
	m.bytes += c.bytes()
	for m.bytes > m.limit {
		last := m.recent.Back().Value.(*chain)
		m.remove(store.Key{Tenant: last.tenant, ID: last.id})
	}
}

func (m *Chains) remove(key store.Key) {
	if e := m.chains[key]; e != nil {
		m.bytes -= m.recent.Remove(e).(*chain).bytes()
		delete(m.chains, key)
	}
}

// chainError is the answer for an error of the store about the response that a
// request continues.
func chainError(id string, err error) *apierror.Error {
	if errors.Is(err, store.ErrNotFound) {
		return apierror.New(http.StatusNotFound, "previous_response_not_found", "previous_response_id",
			"The response %q, or one that it continues, is not stored (any more). Send the whole conversation as input.", id)
	}
	return storeDown(err)
}

// addChain begins the conversation with the responses that the request
// continues. Their instructions and tools are not those of this request.
func (d *decoder) addChain(ctx context.Context) *apierror.Error {
	switch {
	case d.previous == "":
		return nil
	case d.api.Store == nil:
		return apierror.Invalid("previous_response_id", "No responses are stored, so none can be continued. Send the whole conversation as input.")
	case d.api.Chains == nil, d.standalone: // which shows the items themselves
		_, err := d.readChain(ctx)
		return err
	}
	head, err := d.api.Store.Head(ctx, d.scope.Tenant, d.previous)
	if err != nil {
		return chainError(d.previous, err)
	}
	var apiErr *apierror.Error
	c := d.api.Chains.get(d.scope.Tenant, d.previous)
	if c == nil || !c.holds(head) {
		c, apiErr = d.nextChain(ctx, head)
	}
	if c == nil && apiErr == nil {
		c, apiErr = d.wholeChain(ctx, head)
	}
	if c == nil {
		return apiErr
	}
	d.begin(ctx, c.at(head))
	return d.count("previous_response_id", c.stored-d.stored) // of which what was read has been counted
}

// begin begins the conversation with a remembered chain.
func (d *decoder) begin(ctx context.Context, c *chain) {
	d.chain = c
	d.input.Before = c.prefix
	d.facts = c.facts.with(d.facts)
	api, scope := d.api, d.scope
	d.whole = func() (*decoder, *apierror.Error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*storeTimeout)
		defer cancel()
		whole := &decoder{api: api, scope: scope, previous: c.id}
		_, err := whole.readChain(ctx)
		return whole, err
	}
	d.input.Whole = func() ([]turn.Item, *apierror.Error) {
		whole, err := d.whole()
		return whole.input.Items, err
	}
}

// unfold puts the items of the responses that the request continues in the
// place of what is remembered of them.
func (d *decoder) unfold() *apierror.Error {
	if d.input.Before == nil {
		return nil
	}
	whole, err := d.whole()
	if err != nil {
		return err
	}
	d.input.Items = append(whole.input.Items, d.input.Items...)
	d.input.Before, d.input.Whole, d.whole, d.chain = nil, nil, nil, nil
	return nil
}

// nextChain makes the chain of the request where it is only its last response
// that is not remembered, because another replica has made it. It gives nil
// where it is more.
func (d *decoder) nextChain(ctx context.Context, head store.Head) (*chain, *apierror.Error) {
	last, err := d.api.Store.Get(ctx, d.scope.Tenant, d.previous)
	if err != nil {
		return nil, chainError(d.previous, err)
	}
	if err := d.reserve(responseBytes(last)); err != nil {
		return nil, err
	}
	next := &chain{tenant: d.scope.Tenant, id: d.previous, own: ownItems(last), head: head}
	before := d.api.Chains.get(d.scope.Tenant, last.Previous)
	switch {
	case last.Version != head.Version || last.Live:
		return nil, nil
	case last.Previous == "":
		before = nil
	case before == nil || before.newEpoch || before.head.Epoch != head.Epoch:
		return nil, nil
	}
	if d.api.extend(ctx, d.scope, next, before, last) != nil {
		return nil, nil
	}
	return next, nil
}

// wholeChain makes the chain of the request by reading all of it. Where it
// gives nil, the decoder has the items: Prepare will find what is wrong with
// them.
func (d *decoder) wholeChain(ctx context.Context, head store.Head) (*chain, *apierror.Error) {
	last, apiErr := d.readChain(ctx)
	if apiErr != nil || last.Lapsed {
		return nil, apiErr
	}
	prefix, err := d.scope.Extend(ctx, nil, d.input.Items)
	if err != nil {
		return nil, nil
	}
	c := &chain{tenant: d.scope.Tenant, id: d.previous, prefix: prefix, own: ownItems(last), stored: d.stored, facts: d.facts.with(facts{}), head: head}
	d.input.Items = nil
	d.api.Chains.put(c, nil)
	return c, nil
}

// extend remembers the chain next, which has the response r behind what before
// has, nil if r continues none.
func (a *API) extend(ctx context.Context, scope *turn.Scope, next, before *chain, r *store.Response) error {
	d := &decoder{api: a, scope: scope}
	if before != nil {
		d.input.Before = before.prefix
		d.facts.numbered = maps.Clone(before.facts.numbered)
	}
	if slices.ContainsFunc(slices.Concat(r.Input, r.Output), isCompaction) {
		return errCompacted
	}
	if err := d.addStored(r); err != nil {
		return err
	}
	var err error
	if next.prefix, err = scope.Extend(ctx, d.input.Before, d.input.Items); err != nil {
		return err
	}
	next.facts, next.stored = d.facts, responseBytes(r)
	if before != nil {
		next.stored += before.stored
		next.facts = before.facts.with(d.facts)
	}
	a.Chains.put(next, before)
	return nil
}

// errCompacted says why a chain is not extended: what a compaction stands for
// has to be read.
var errCompacted = errors.New("the response has a compaction")

func isCompaction(item store.Item) bool { return gjson.GetBytes(item.JSON, "type").Str == "compaction" }

// written remembers the chain of a response that has been stored; before is
// that of the one it continues.
func (a *API) written(ctx context.Context, scope *turn.Scope, before *chain, r *store.Response) {
	next := &chain{tenant: scope.Tenant, id: r.ID, own: ownItems(r), head: store.Head{Version: r.Version}}
	switch {
	case a.Chains == nil || r.Live:
		return
	case before != nil && before.id == r.ID: // the response goes on: what it had stands first in its input
		r = &store.Response{ID: r.ID, Version: r.Version, Input: r.Input[min(before.own, len(r.Input)):], Output: r.Output}
	case r.Previous == "":
		before, next.newEpoch = nil, true
	case before == nil || before.id != r.Previous:
		return
	}
	if before != nil {
		next.head.Epoch = before.head.Epoch
		if r.Version > 1 {
			next.head.Epoch++
		}
	}
	_ = a.extend(ctx, scope, next, before, r) // what cannot be remembered now is read when it is needed
}

// ownItems is how many items a response adds to a conversation.
func ownItems(r *store.Response) int {
	return len(r.Input) + len(withoutCut(r.Output))
}

// readChain adds the items of the responses that the request continues, and
// gives the last one.
func (d *decoder) readChain(ctx context.Context) (*store.Response, *apierror.Error) {
	responses, err := d.api.Store.Chain(ctx, d.scope.Tenant, d.previous)
	if err != nil {
		return nil, chainError(d.previous, err)
	}
	last := responses[len(responses)-1]
	if last.Live && !last.Lapsed {
		return nil, apierror.Invalid("previous_response_id", "The response %q is still being made. Wait for its end, or cancel it.", d.previous)
	}
	for _, r := range responses {
		if err := d.bringIn("previous_response_id", responseBytes(r)); err != nil {
			return nil, err
		}
	}
	for _, r := range responses {
		if err := d.addStored(r); err != nil {
			return nil, err
		}
	}
	return last, nil
}
