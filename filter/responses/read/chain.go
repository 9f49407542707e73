package read

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// chainError is the answer for an error of the store about the response that a
// request continues.
func chainError(id string, err error) *apierror.Error {
	if errors.Is(err, store.ErrNotFound) {
		return request.PreviousNotFound(
			"The response %q, or one that it continues, is not stored (any more). Send the whole conversation as "+
				"input.",
			item.Clip(id))
	}
	return stored.Unavailable(err)
}

// addChain begins the conversation with the responses that the request continues.
// Their instructions and tools are not those of this request.
func (d *decoder) addChain(ctx context.Context) *apierror.Error {
	previous := d.fields.previous
	switch {
	case previous == "":
		return nil
	case d.reader.Store == nil:
		return request.PreviousNotFound(
			"No responses are stored, so none can be continued. Send the whole conversation as input.")
	case d.reader.Chains == nil, record.From(ctx) != nil, d.items.compacting.standalone:
		// The answer to a compaction has the items themselves, and so has a recorded exchange.
		_, err := d.items.readChain(ctx, previous)
		return err
	}

	// The head is read each time, also where the chain is remembered: another replica may have
	// deleted or overwritten a response of it.
	head, err := d.reader.Store.Head(ctx, d.rc.Tenant, previous)
	if err != nil {
		return chainError(previous, err)
	}

	var apiErr *apierror.Error
	c := d.reader.Chains.get(d.rc.Tenant, previous)
	if c == nil || !c.valid(head) {
		c, apiErr = d.nextChain(ctx, head)
	}

	if c == nil && apiErr == nil {
		c, apiErr = d.wholeChain(ctx, head)
	}

	if c == nil {
		return apiErr
	}

	d.beginWith(ctx, c.at(head))

	// Without what was read and counted already.
	return d.items.count("previous_response_id", c.bytes-d.items.storedBytes)
}

// beginWith begins the conversation with a remembered chain.
func (d *decoder) beginWith(ctx context.Context, c *chain) {
	// The state of the conversation counts as if its items had been read.
	d.history.chain = c
	d.items.before = c.prefix
	d.items.state = c.state.with(d.items.state)
	// The list of deferred tools is the chain's now.
	d.items.tools.index = toolset.Index{}
	reader, rc := d.reader, d.rc
	d.items.whole = func() ([]turn.Item, *apierror.Error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*request.StoreTimeout)
		defer cancel()
		whole := &itemReader{reader: reader, rc: rc.Within(ctx)}
		_, err := whole.readChain(ctx, c.id)
		return whole.items, err
	}
}

// unfold replaces the prefix of the conversation by the items that it is made of.
func (r *itemReader) unfold() *apierror.Error {
	if r.before == nil {
		return nil
	}
	whole, err := r.whole()
	if err != nil {
		return err
	}
	r.items = append(whole, r.items...)
	r.before, r.whole = nil, nil
	return nil
}

// nextChain makes the chain of the request where only its last response is not
// remembered, because another replica has made it. It returns nil where more is
// missing.
func (d *decoder) nextChain(ctx context.Context, head store.Head) (*chain, *apierror.Error) {
	previous := d.fields.previous
	last, err := d.reader.Store.Get(ctx, d.rc.Tenant, previous)
	if err != nil {
		return nil, chainError(previous, err)
	}
	if err := d.rc.Room(madeOfStored * stored.ResponseBytes(last)); err != nil {
		return nil, err
	}

	next := &chain{tenant: d.rc.Tenant, id: previous, own: ownItems(last), head: head}
	before := d.reader.Chains.get(d.rc.Tenant, last.Previous)
	switch {
	case last.Version != head.Version || last.Live:
		return nil, nil
	case last.Previous == "":
		before = nil
	case before == nil || before.newEpoch || before.head.Epoch != head.Epoch:
		return nil, nil
	}

	if d.reader.extendChain(ctx, d.rc, next, before, last) != nil {
		return nil, nil
	}

	return next, nil
}

// wholeChain makes the chain of the request by reading all of it. Where it returns
// nil, the decoder has the items: preparing the turn will find what is wrong with
// them.
func (d *decoder) wholeChain(ctx context.Context, head store.Head) (*chain, *apierror.Error) {
	last, apiErr := d.items.readChain(ctx, d.fields.previous)
	if apiErr != nil || last.Lapsed {
		return nil, apiErr
	}

	prefix, err := turn.Extend(ctx, d.rc, nil, d.items.items)
	if err != nil {
		return nil, nil
	}

	c := &chain{
		tenant: d.rc.Tenant,
		id:     d.fields.previous,
		prefix: prefix,
		own:    ownItems(last),
		bytes:  d.items.storedBytes,
		state:  d.items.state.with(serverState{}),
		head:   head,
	}
	// The prefix has the items now, and the chain is shared with requests to come.
	d.items.items = nil
	d.reader.Chains.put(c, nil)

	return c, nil
}

// readChain adds the items of a response and of those that it continues, and
// returns the response.
func (r *itemReader) readChain(ctx context.Context, id string) (*store.Response, *apierror.Error) {
	responses, err := r.reader.Store.Chain(ctx, r.rc.Tenant, id)
	if err != nil {
		return nil, chainError(id, err)
	}

	// A live response has no output yet; one whose lease has lapsed will have no other.
	last := responses[len(responses)-1]
	if last.Live && !last.Lapsed {
		return nil, apierror.Invalid("previous_response_id",
			"The response %q is still being made. Wait for its end, or cancel it.", id)
	}

	for _, response := range responses {
		if err := r.bringIn("previous_response_id", stored.ResponseBytes(response)); err != nil {
			return nil, err
		}
	}

	if err := r.addResponses(responses...); err != nil {
		return nil, err
	}

	return last, nil
}

// extendChain remembers the chain next, which has the response r after what
// before has; before is nil if r continues none.
func (a *Reader) extendChain(
	ctx context.Context, rc *turn.RequestContext, next, before *chain, r *store.Response,
) error {
	items := &itemReader{reader: a, rc: rc}
	if before != nil {
		items.before = before.prefix
		// The names of tools decide how the calls are spelled. The chain is shared: its map must stay
		// as it is.
		items.state.numbered = maps.Clone(before.state.numbered)
	}

	if slices.ContainsFunc(slices.Concat(r.Input, r.Output), item.IsCompaction) {
		return errCompacted
	}
	if err := items.addResponses(r); err != nil {
		return err
	}

	var err error
	if next.prefix, err = turn.Extend(ctx, rc, items.before, items.items); err != nil {
		return err
	}

	next.state, next.bytes = items.state, stored.ResponseBytes(r)
	if before != nil {
		next.bytes += before.bytes
		next.state = before.state.with(items.state)
	}

	a.Chains.put(next, before)

	return nil
}

// errCompacted is why a chain is not extended: the items that a compaction replaces
// have to be read.
var errCompacted = errors.New("the response has a compaction")

// remember remembers the chain of a response that has been stored; before is that
// of the response that it continues.
func (a *Reader) remember(ctx context.Context, rc *turn.RequestContext, before *chain, r *store.Response) {
	// A recorded exchange must not have what is read to remember the chain.
	ctx = record.With(ctx, nil)
	next := &chain{tenant: rc.Tenant, id: r.ID, own: ownItems(r), head: store.Head{Version: r.Version}}
	switch {
	case a.Chains == nil || r.Live:
		return
	case before != nil && before.id == r.ID:
		// The response is made anew: what it had comes first in its input.
		r = &store.Response{
			ID:      r.ID,
			Version: r.Version,
			Input:   r.Input[min(before.own, len(r.Input)):],
			Output:  r.Output,
		}
	case r.Previous == "":
		before, next.newEpoch = nil, true
	case before == nil || before.id != r.Previous:
		return
	}

	if before != nil {
		// A response that is written again changes what continues it, as in the store.
		next.head.Epoch = before.head.Epoch
		if r.Version > 1 {
			next.head.Epoch++
		}
	}

	// What cannot be remembered now is read when it is needed.
	_ = a.extendChain(ctx, rc.Within(ctx), next, before, r)
}
