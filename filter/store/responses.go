package store

import (
	"context"
	"errors"
)

// Responses keeps responses and their items. What one tenant keeps, no other
// can read; to it another's ids do not exist. It is safe for concurrent use,
// and what it gives must not be changed.
type Responses interface {
	// Put keeps a response, in place of one with its id. ErrTooLarge means
	// that the store never has room for it.
	Put(ctx context.Context, tenant string, r *Response) error
	// Get gives a response, or ErrNotFound.
	Get(ctx context.Context, tenant, id string) (*Response, error)
	// Chain gives a response and all that it continues, the first of them
	// first, in one query, and begins their age anew. If one of them is
	// gone, the error is ErrNotFound.
	Chain(ctx context.Context, tenant, id string) ([]*Response, error)
	// Items gives the items of these ids that responses have as input or
	// output, by id and in one query. Ids that are unknown are left out.
	Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error)
	// Delete forgets a response with its items, or gives ErrNotFound.
	Delete(ctx context.Context, tenant, id string) error
}

// The errors of a store that is up. All others mean that it is not.
var (
	ErrNotFound = errors.New("not found")
	ErrTooLarge = errors.New("too large for the store")
)

// Response is one response.
type Response struct {
	ID       string
	Previous string // id of the response that it continues; "": none
	Object   []byte // the response as JSON, without its member "output"
	Input    []Item // of its own request, in order
	Output   []Item
}

// Item is one item of a conversation.
type Item struct {
	ID   string
	JSON []byte // has the id and a type
}

// bytes is how much memory a response takes, roughly.
func (r *Response) bytes() int64 {
	n := len(r.ID) + len(r.Previous) + len(r.Object)
	for _, items := range [][]Item{r.Input, r.Output} {
		for _, i := range items {
			n += len(i.ID) + len(i.JSON) + entryOverhead
		}
	}
	return int64(n)
}
