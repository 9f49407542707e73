package store

import "context"

// What the store in memory returns is in memory already, and may be large all the same: its
// callers keep it when the store drops it. So it is taken of the room of a call before it is
// returned. That happens without the store's lock, because other requests may be given up for it.

// handOut returns a function that returns what was read, once there is room for it.
func handOut[T any](ctx context.Context, bytes func(T) int) func(T, error) (T, error) {
	return func(read T, err error) (T, error) {
		if err == nil {
			err = TakeRoom(ctx, bytes(read))
		}
		if err != nil {
			var nothing T
			return nothing, err
		}
		return read, nil
	}
}

// Get implements [Responses].
func (m *Memory) Get(ctx context.Context, tenant, id string) (*Response, error) {
	return handOut(ctx, bodySize)(m.readResponse(tenant, id))
}

// Chain implements [Responses].
func (m *Memory) Chain(ctx context.Context, tenant, id string) ([]*Response, error) {
	return handOut(ctx, chainBytes)(m.readChain(tenant, id))
}

// Items implements [Responses].
func (m *Memory) Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error) {
	return handOut(ctx, foundBytes)(m.readItems(tenant, ids))
}

// ConversationItems implements [Conversations].
func (m *Memory) ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error) {
	return handOut(ctx, pageBytes)(m.readPage(tenant, id, p))
}

// ConversationItem implements [Conversations].
func (m *Memory) ConversationItem(ctx context.Context, tenant, id, item string) (Item, error) {
	return handOut(ctx, func(i Item) int { return len(i.JSON) })(m.readItem(tenant, id, item))
}

// Texts implements [Texts].
func (m *Memory) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	return handOut(ctx, textsBytes)(m.readTexts(tenant, names))
}

func chainBytes(chain []*Response) (n int) {
	for _, r := range chain {
		n += bodySize(r)
	}
	return n
}

func pageBytes(page []Item) (n int) {
	for i := range page {
		n += len(page[i].JSON)
	}
	return n
}

func batchBytes(batches []Batch) (n int) {
	for i := range batches {
		n += len(batches[i].SSE)
	}
	return n
}

func textsBytes(texts map[string]string) (n int) {
	for _, text := range texts {
		n += len(text)
	}
	return n
}
