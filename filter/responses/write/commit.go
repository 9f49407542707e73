package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// The retries of a background response: nobody waits for it, and its lease is renewed
// meanwhile.
const (
	putRetry        = time.Second // between two tries
	backgroundTries = 10
)

// commit is the job that stores how a response has ended, extends and unlocks its
// conversation, and remembers its chain. Its result is a committed.
type commit struct {
	services   *Services
	request    *request.Request
	response   *store.Response
	background bool
	local      bool // it is kept for the requests of its connection only

	// The conversation: nil if none is locked; whether it gets the items; and the object of
	// the response if it does not get them.
	lock    *request.Lock
	extends bool
	apart   []byte
}

// committed is what came of a commit.
type committed struct {
	err   error // why the response is not stored; nil if it is
	apart bool  // the conversation did not get the response's items
	fault error // what else went wrong
}

// Do implements api.Job. It is completed even if ctx ends. Its error says what went
// wrong, for the log if nobody takes the result.
//
// While a store hangs and a client waits, it takes 15 s at most: 5 s for the response, 5 s for the
// conversation's items and its lock together, and 5 s for the response as one apart from the
// conversation. Only the last event of a stream waits, keep-alives go on, and a deadline of the
// reply gives up while the write goes on.
func (c *commit) Do(ctx context.Context) (any, error) {
	// A client that leaves meanwhile ends ctx: what has begun to be stored is completed all the same.
	ctx = context.WithoutCancel(ctx)
	var done committed
	done.err = c.store(ctx, c.response)
	if c.lock != nil {
		c.extendConversation(ctx, &done)
	}
	return done, errors.Join(done.err, done.fault)
}

// store stores a response and remembers its chain.
func (c *commit) store(ctx context.Context, r *store.Response) error {
	// Only a background response can wait: of others the client waits for the answer.
	tries := 1
	if c.background {
		tries = backgroundTries
	}

	err := c.put(ctx, r)
	for try := 1; err != nil && try < tries && !permanent(err); try++ {
		time.Sleep(putRetry)
		err = c.put(ctx, r)
	}

	switch {
	case err == nil:
		ctx, cancel := context.WithTimeout(ctx, request.StoreTimeout)
		defer cancel()
		c.request.Conversation.Remember(ctx, r)
	case errors.Is(err, store.ErrConflict) && r.Version > 1:
		return c.overtaken(ctx, err)
	}

	return err
}

func (c *commit) put(ctx context.Context, r *store.Response) error {
	switch {
	case c.background:
		ctx = store.Patiently(ctx)
	case c.local:
		ctx = store.Locally(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, request.StoreTimeout)
	defer cancel()
	return c.services.Store.Put(ctx, c.request.Context.Tenant, r)
}

// permanent reports whether an error stays the same in a second try.
func permanent(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTooLarge)
}

// overtaken is why the stored response has not the version before the new one: the
// store's ErrNotFound if the response is gone, else the conflict.
func (c *commit) overtaken(ctx context.Context, conflict error) error {
	ctx, cancel := context.WithTimeout(ctx, request.StoreTimeout)
	defer cancel()
	if _, err := c.services.Store.Head(ctx, c.request.Context.Tenant, c.response.ID); errors.Is(err,
		store.ErrNotFound) {
		return fmt.Errorf("the response is gone: %w", err)
	}
	return conflict
}

// extendConversation adds what the response adds to its conversation: the input and
// the output of one that has come to its own end, but no call that was cut, because
// such a call can have no output. All others leave the conversation as it was. A
// stored response whose items could not be added is stored again, as one without a
// conversation.
func (c *commit) extendConversation(ctx context.Context, done *committed) {
	var items []store.Item
	if done.err == nil && c.extends {
		items = slices.Concat(c.response.Input, item.WithoutCutCalls(c.response.Output))
	}

	// The lock is released also if nothing is added.
	added, err := c.lock.Extend(ctx, items)
	done.fault = err
	done.apart = !added || done.err != nil
	if !done.apart || done.err != nil {
		return
	}

	// The response was stored as one of the conversation before it was known that the conversation
	// does not get its items.
	again := *c.response
	again.Version++
	again.Conversation, again.Object = "", c.apart
	if err := c.store(ctx, &again); err != nil {
		done.fault = errors.Join(done.fault, fmt.Errorf("store that the response is not in its conversation: %w", err))
	}
}
