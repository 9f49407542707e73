package store

import (
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
	uses      int64 // so far
}

// localResponse is a response of a [Local].
type localResponse struct {
	*Response
	bytes    int
	used     int64 // number of its last use
	children int   // responses of the Local that continue it
	// withdrawn says that only those that continue it already have it.
	withdrawn bool
}

// localOverhead is roughly what a response takes beside its JSON.
const localOverhead = 512

// NewLocal makes a Local for at most limit bytes of responses, which are taken of room.
func NewLocal(limit int, room Room) *Local {
	return &Local{limit: limit, room: room, responses: map[string]*localResponse{}}
}

// Close forgets all responses, and returns what they have taken of the room.
func (l *Local) Close() {
	l.mu.Lock()
	bytes := l.bytes
	l.responses, l.bytes = nil, 0
	l.mu.Unlock()

	// Returning is not refused.
	_ = l.room(-bytes)
}

// put keeps a response.
func (l *Local) put(r *Response) error {
	bytes := bodySize(r) + localOverhead
	if bytes > l.limit {
		return ErrTooLarge
	}
	// The room's own lock is not waited for under the Local's.
	if err := l.room(bytes); err != nil {
		return ErrTooLarge
	}
	freed, err := l.add(r, bytes)
	_ = l.room(-freed)
	return err
}

// add keeps a response, and returns the bytes that are not needed any more.
func (l *Local) add(r *Response, bytes int) (freed int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	before := l.bytes + bytes
	switch {
	case l.responses == nil:
		// The connection has ended, and nobody can ask for the response.
		return bytes, nil
	case l.responses[r.ID] != nil:
		return bytes, ErrConflict
	}

	// What the new one continues must not make room for it.
	previous := l.responses[r.Previous]
	if previous != nil {
		previous.children++
	}
	for l.bytes+bytes > l.limit && l.forget() {
	}
	if l.bytes+bytes > l.limit {
		if previous != nil {
			previous.children--
		}
		return before - l.bytes, ErrTooLarge
	}

	l.uses++
	l.responses[r.ID] = &localResponse{Response: r, bytes: bytes, used: l.uses}
	l.bytes += bytes
	return before - l.bytes, nil
}

// forget forgets the response that was unused for longest, of those that no other one
// continues. It reports whether there was one.
func (l *Local) forget() bool {
	var oldest *localResponse
	for _, r := range l.responses {
		if r.children == 0 && (oldest == nil || r.used < oldest.used) {
			oldest = r
		}
	}
	if oldest == nil {
		return false
	}

	l.remove(oldest)
	return true
}

// remove forgets a response that no other one continues.
func (l *Local) remove(r *localResponse) {
	delete(l.responses, r.ID)
	l.bytes -= r.bytes
	if previous := l.responses[r.Previous]; previous != nil {
		previous.children--
	}
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

	l.uses++
	last := l.responses[id]
	if last == nil || last.withdrawn {
		return nil
	}

	var chain []*Response
	for r := last; r != nil; r = l.responses[r.Previous] {
		r.used = l.uses
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
