package storetest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// roomSize is how large what tests of rooms read is at least: more than is read in one round trip.
const roomSize = 256 << 10

// roomReads are reads of what putLarge has stored. They return how many bytes they have read.
var roomReads = map[string]func(ctx context.Context, s store.Store) (int, error){
	"Get": func(ctx context.Context, s store.Store) (int, error) {
		r, err := s.Get(ctx, "a", "2")
		return responseBytes(r), err
	},
	"Chain": func(ctx context.Context, s store.Store) (n int, err error) {
		chain, err := s.Chain(ctx, "a", "2")
		for _, r := range chain {
			n += responseBytes(r)
		}
		return n, err
	},
	"Items": func(ctx context.Context, s store.Store) (n int, err error) {
		found, err := s.Items(ctx, "a", []string{"in_1", "large_2"})
		for _, i := range found {
			n += len(i.JSON)
		}
		return n, err
	},
	"Events": func(ctx context.Context, s store.Store) (n int, err error) {
		batches, err := s.Events(ctx, "a", "live", -1, 0)
		for _, b := range batches {
			n += len(b.SSE)
		}
		return n, err
	},
	"ConversationItems": func(ctx context.Context, s store.Store) (n int, err error) {
		page, err := s.ConversationItems(ctx, "a", "c", store.Page{Descending: true})
		for _, i := range page {
			n += len(i.JSON)
		}
		return n, err
	},
	"ConversationItem": func(ctx context.Context, s store.Store) (int, error) {
		one, err := s.ConversationItem(ctx, "a", "c", "large_c")
		return len(one.JSON), err
	},
	"Texts": func(ctx context.Context, s store.Store) (n int, err error) {
		texts, err := s.Texts(ctx, "a", []string{"x", "y", "none"})
		for _, text := range texts {
			n += len(text)
		}
		return n, err
	},
}

func responseBytes(r *store.Response) int {
	if r == nil {
		return 0
	}
	n := len(r.Object)
	for _, items := range [][]store.Item{r.Input, r.Output} {
		for _, i := range items {
			n += len(i.JSON)
		}
	}
	return n
}

// putLarge stores what roomReads read, with contents of so many bytes each.
func (s *tester) putLarge(size int) {
	s.Helper()
	large := func(id string) store.Item {
		return store.Item{ID: "large_" + id, JSON: []byte(`{"x":"` + strings.Repeat("x", size) + `"}`)}
	}

	first, second := response("1", ""), response("2", "1")
	first.Output, second.Output = []store.Item{large("1")}, []store.Item{large("2")}
	s.put("a", first, second, live("live", "me", patience))
	s.must(s.Append(s.ctx, "a", "live", "me", store.Batch{SSE: large("e").JSON}))

	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	s.must(s.AddItems(s.ctx, "a", "c", "", []store.Item{item("small"), large("c")}))
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": string(large("x").JSON), "y": "small"}))
}

var errFull = errors.New("full")

// room is memory of a limit.
type room struct {
	limit, held, most int
}

func (r *room) take(n int) error {
	if n > 0 && r.held+n > r.limit {
		return errFull
	}
	r.held += n
	r.most = max(r.most, r.held)
	return nil
}

func (r *room) in(ctx context.Context) context.Context { return store.WithRoom(ctx, r.take) }

// testRoom shows that what is read was taken of the room of the call, and stays taken; that
// nothing is read, nor stays taken, where there is no room; and that this is no fault of the store.
func testRoom(t *testing.T, open Open) {
	for _, size := range []int{100, roomSize} {
		s := begin(t, open)
		s.putLarge(size)
		for name, read := range roomReads {
			wide := &room{limit: 1 << 30}
			n, err := read(wide.in(s.ctx), s.Store)
			s.must(err)
			if n < size || wide.held < n || wide.held > n+1024 || wide.most < wide.held {
				t.Errorf("%s: %d bytes are read, %d of %d stay taken", name, n, wide.held, wide.most)
			}

			// Room for a first read, and not for what is large.
			for _, limit := range []int{size - 1, min(size-1, 160<<10)} {
				narrow := &room{limit: limit}
				n, err = read(narrow.in(s.ctx), s.Store)
				refused := errors.Is(err, store.ErrNoRoom) && errors.Is(err, errFull) && store.Answered(err)
				if !refused || n != 0 || narrow.held != 0 {
					t.Errorf("%s with room for %d of %d bytes: %v, %d bytes are read, %d stay taken",
						name, limit, size, err, n, narrow.held)
				}
			}
		}
	}
}

// TestRoomFirst shows that no more comes into memory than was taken of the room before. It counts
// what is allocated: nothing may run beside it.
func TestRoomFirst(t *testing.T, open Open) {
	const size = 4 << 20
	o := options
	o.TextBytes = 64 << 20
	s := beginWith(t, open, o)
	s.putLarge(size)
	for name, read := range roomReads {
		measured := func(r *room) (allocated int, err error) {
			// What is garbage by now counts too, so that nothing of it escapes.
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = read(r.in(s.ctx), s.Store)
			runtime.ReadMemStats(&after)
			return int(after.TotalAlloc - before.TotalAlloc), err
		}

		const slack = 256 << 10
		none := &room{limit: 1 << 20}
		if allocated, err := measured(none); !errors.Is(err, store.ErrNoRoom) || allocated > slack {
			t.Errorf("%s without room: %v, %d bytes are allocated", name, err, allocated)
		}
		wide := &room{limit: 1 << 30}
		if allocated, err := measured(wide); err != nil || allocated > wide.most+slack {
			t.Errorf("%s: %v, %d bytes are allocated, %d were taken", name, err, allocated, wide.most)
		}
	}
}
