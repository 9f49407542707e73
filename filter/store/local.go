package store

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"sync"
)

// Local keeps the responses of one connection that are not to be stored, so that the requests
// of the connection, and nobody else's, can continue them. [WithLocals] reads it and writes it,
// by the contexts of [WithLocal]. It is safe for concurrent use.
//
// What a response of it continues may be in it too, or in the store. A stored response that
// continues one of it is in both. When there is no room, the
// response that was unused for longest and that no other one continues is forgotten. One that a
// request could not continue is withdrawn.
type Local struct {
	limit int
	room  Room

	mu        sync.Mutex
	responses map[string]*localResponse // by id; nil: closed
	bytes     int
	// recent are the responses, the one that was used last in front. A response is in front of
	// those that continue it, because a use of these is one of it: the last one has none.
	recent list.List // of *localResponse
}

// localResponse is a response of a [Local].
type localResponse struct {
	*Response
	at       *list.Element // of recent
	bytes    int
	children int // responses of the Local that continue it
	// withdrawn says that only those that continue it already have it.
	withdrawn bool
}

const (
	// localOverhead is roughly what a response takes beside its object and its items, and
	// localItem what an item takes beside its id and its JSON.
	localOverhead = 512
	localItem     = 64
)

// localBytes is what a response takes in memory.
func localBytes(r *Response) int {
	n := localOverhead + cap(r.Object)
	for _, items := range [][]Item{r.Input, r.Output} {
		for _, item := range items {
			n += localItem + len(item.ID) + cap(item.JSON)
		}
	}
	return n
}

// NewLocal makes a Local for at most limit bytes of responses, which are taken of room.
func NewLocal(limit int, room Room) *Local {
	return &Local{limit: limit, room: room, responses: map[string]*localResponse{}}
}

// Close forgets all responses, and returns what they have taken of the room.
func (l *Local) Close() {
	l.mu.Lock()
	bytes := l.bytes
	l.responses, l.bytes = nil, 0
	l.recent.Init()
	l.mu.Unlock()

	// Returning is not refused.
	_ = l.room(-bytes)
}

// put keeps a response.
func (l *Local) put(r *Response) error {
	bytes := localBytes(r)
	if bytes > l.limit {
		return ErrTooLarge
	}
	added, freed, err := l.add(r, bytes)
	// The room's own lock is not waited for under the Local's. Returning is not refused.
	_ = l.room(-freed)
	if added == nil {
		return err
	}

	// After it is there: what makes room for others is looked for among what has been taken.
	if l.room(bytes) == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.responses[r.ID] == added {
		l.remove(added)
	}
	return ErrTooLarge
}

// add keeps a response, unless the connection has ended. It returns the bytes that are not needed any
// more.
func (l *Local) add(r *Response, bytes int) (added *localResponse, freed int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	before := l.bytes
	switch {
	case l.responses == nil:
		// Nobody can ask for the response.
		return nil, 0, nil
	case l.responses[r.ID] != nil:
		return nil, 0, ErrConflict
	}

	// What the new one continues must not make room for it.
	previous := l.responses[r.Previous]
	l.use(previous)
	for l.bytes+bytes > l.limit && l.forget(previous) {
	}
	freed = before - l.bytes
	if l.bytes+bytes > l.limit {
		return nil, freed, ErrTooLarge
	}

	added = &localResponse{Response: r, bytes: bytes}
	added.at = l.recent.PushFront(added)
	l.use(previous)
	if previous != nil {
		previous.children++
	}
	l.responses[r.ID] = added
	l.bytes += bytes
	return added, freed, nil
}

// use notes that a response is of use, and so those that it continues; nil: none is.
func (l *Local) use(r *localResponse) {
	for ; r != nil; r = l.responses[r.Previous] {
		l.recent.MoveToFront(r.at)
	}
}

// forget forgets the response that was unused for longest, and reports whether there was one. But
// except, which may be nil, and what it continues stay.
func (l *Local) forget(except *localResponse) bool {
	last := l.recent.Back()
	if last == nil || last.Value == except {
		return false
	}
	l.remove(last.Value.(*localResponse))
	return true
}

// remove forgets a response that no other one continues.
func (l *Local) remove(r *localResponse) {
	delete(l.responses, r.ID)
	l.recent.Remove(r.at)
	l.bytes -= r.bytes
	if previous := l.responses[r.Previous]; previous != nil {
		previous.children--
	}
}

// GiveUp forgets what was unused for longest: bytes that have been taken from the room already.
func (l *Local) GiveUp(bytes int) {
	l.mu.Lock()
	before := l.bytes
	for before-l.bytes < bytes && l.forget(nil) {
	}
	freed := before - l.bytes
	l.mu.Unlock()

	// The rest of the last one. Returning is not refused.
	_ = l.room(min(bytes-freed, 0))
}

// Withdraw has a response, if there is one with the id, not be found any more. Responses that
// continue it stay whole.
func (l *Local) Withdraw(id string) {
	l.mu.Lock()
	r, freed := l.responses[id], 0
	switch {
	case r == nil:
	case r.children > 0:
		r.withdrawn = true
	default:
		freed = r.bytes
		l.remove(r)
	}
	l.mu.Unlock()

	// Returning is not refused. The room's own lock is not waited for under the Local's.
	_ = l.room(-freed)
}

// has reports whether the Local has a response.
func (l *Local) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.responses[id] != nil
}

// chain returns a response and those before it that the Local has, the first one first; none if
// it does not have the response.
func (l *Local) chain(id string) []*Response {
	l.mu.Lock()
	defer l.mu.Unlock()

	last := l.responses[id]
	if last == nil || last.withdrawn {
		return nil
	}

	l.use(last)
	var chain []*Response
	for r := last; r != nil; r = l.responses[r.Previous] {
		chain = append(chain, r.Response)
	}
	for i, j := 0, len(chain)-1; i < j; i, j = i+1, j-1 {
		chain[i], chain[j] = chain[j], chain[i]
	}
	return chain
}

// items adds to found the items that responses of the Local have.
func (l *Local) items(ids []string, found map[string]Item) map[string]Item {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	local := map[string]Item{}
	for _, r := range l.responses {
		for _, list := range [][]Item{r.Input, r.Output} {
			for _, i := range list {
				if wanted[i.ID] {
					local[i.ID] = i
				}
			}
		}
	}
	if len(local) == 0 {
		return found
	}
	if found = maps.Clone(found); found == nil {
		return local
	}
	maps.Copy(found, local)
	return found
}

// localKey is the key of the Local of a context, and ofLocal of that a response is for it.
type (
	localKey struct{}
	ofLocal  struct{}
)

// WithLocal returns a context whose calls of a store of [WithLocals] find the responses of l too.
func WithLocal(ctx context.Context, l *Local) context.Context {
	return context.WithValue(ctx, localKey{}, l)
}

// HasLocal reports whether calls with ctx have a [Local].
func HasLocal(ctx context.Context) bool { return localOf(ctx) != nil }

func localOf(ctx context.Context) *Local {
	l, _ := ctx.Value(localKey{}).(*Local)
	return l
}

// Locally returns a context with which [Responses.Put] writes to the [Local] of ctx.
func Locally(ctx context.Context) context.Context { return context.WithValue(ctx, ofLocal{}, true) }

// WithLocals returns s with the responses of the [Local] of each call's context.
func WithLocals(s Store) Store { return &withLocals{s} }

type withLocals struct{ Store }

// Put implements [Responses].
func (s *withLocals) Put(ctx context.Context, tenant string, r *Response) error {
	l, local := localOf(ctx), ctx.Value(ofLocal{}) != nil
	switch {
	case local && l == nil:
		return errors.New("a response for a connection was written without one")
	case local:
		return l.put(r)
	}

	err := s.Store.Put(ctx, tenant, r)
	// What a stored response continues may be of the connection only, which then has to have both, or
	// nobody could go on. Without room for it nobody can.
	if err == nil && l != nil && l.has(r.Previous) {
		_ = l.put(r)
	}
	return err
}

// Get implements [Responses].
func (s *withLocals) Get(ctx context.Context, tenant, id string) (*Response, error) {
	chain := localChain(ctx, id)
	if len(chain) == 0 {
		return s.Store.Get(ctx, tenant, id)
	}
	return handOut(ctx, bodySize)(chain[len(chain)-1], nil)
}

// Chain implements [Responses].
func (s *withLocals) Chain(ctx context.Context, tenant, id string) ([]*Response, error) {
	chain := localChain(ctx, id)
	switch {
	case len(chain) == 0:
		return s.Store.Chain(ctx, tenant, id)
	case chain[0].Previous == "":
		return handOut(ctx, chainBytes)(chain, nil)
	}

	stored, err := s.Store.Chain(ctx, tenant, chain[0].Previous)
	if err != nil {
		return nil, err
	}
	if chain, err = handOut(ctx, chainBytes)(chain, nil); err != nil {
		return nil, err
	}
	return append(stored[:len(stored):len(stored)], chain...), nil
}

// Head implements [Responses]. A chain that begins in the store has its epoch there: it changes
// when a response of it is deleted.
func (s *withLocals) Head(ctx context.Context, tenant, id string) (Head, error) {
	chain := localChain(ctx, id)
	if len(chain) == 0 {
		return s.Store.Head(ctx, tenant, id)
	}

	head := Head{Version: chain[len(chain)-1].Version}
	if first := chain[0]; first.Previous != "" {
		stored, err := s.Store.Head(ctx, tenant, first.Previous)
		if err != nil {
			return Head{}, err
		}
		head.Epoch = stored.Epoch
	}
	return head, nil
}

// Items implements [Responses].
func (s *withLocals) Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error) {
	found, err := s.Store.Items(ctx, tenant, ids)
	if l := localOf(ctx); l != nil && err == nil {
		found = l.items(ids, found)
	}
	return found, err
}

func localChain(ctx context.Context, id string) []*Response {
	if l := localOf(ctx); l != nil && id != "" {
		return l.chain(id)
	}
	return nil
}
