package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// localRoom counts what is taken, and has so much at most.
type localRoom struct{ taken, most int }

func (r *localRoom) take(bytes int) error {
	if bytes > 0 && r.taken+bytes > r.most {
		return errors.New("no room")
	}
	r.taken += bytes
	return nil
}

func localResponseOf(id, previous string) *Response {
	return &Response{
		ID: id, Previous: previous, Version: 1, Object: []byte(`{}`),
		Input: []Item{{ID: "in_" + id, JSON: []byte(`{}`)}}, Output: []Item{{ID: "out_" + id, JSON: []byte(`{"a":1}`)}},
	}
}

func idsOf(chain []*Response) string {
	ids := make([]string, 0, len(chain))
	for _, r := range chain {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

// A connection finds what it keeps, after what the store has; others do not.
func TestLocal(t *testing.T) {
	t.Parallel()
	main, err := Open(t.Context(), "memory:", Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, TextTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = main.Close() }()
	s := WithLocals(main)
	room := &localRoom{most: 1 << 20}
	l := NewLocal(1<<20, room.take)
	ctx := WithLocal(t.Context(), l)
	put := func(ctx context.Context, id, previous string) {
		t.Helper()
		if err := s.Put(ctx, "t", localResponseOf(id, previous)); err != nil {
			t.Fatal(err)
		}
	}
	put(ctx, "a", "") // stored, although the connection has a Local
	put(Locally(ctx), "b", "a")
	put(Locally(ctx), "c", "b")
	put(Locally(ctx), "x", "")
	put(ctx, "y", "x") // stored, and nobody else has what it continues

	if !HasLocal(ctx) || HasLocal(t.Context()) {
		t.Error("HasLocal is wrong")
	}
	for id, want := range map[string]string{"a": "a", "b": "a b", "c": "a b c", "x": "x", "y": "x y"} {
		chain, err := s.Chain(ctx, "t", id)
		if err != nil || idsOf(chain) != want {
			t.Errorf("the chain of %s: %s, %v", id, idsOf(chain), err)
		}
		if r, err := s.Get(ctx, "t", id); err != nil || r.ID != id {
			t.Errorf("the response %s: %v, %v", id, r, err)
		}
	}
	root, _ := s.Head(ctx, "t", "a")
	if head, err := s.Head(ctx, "t", "c"); err != nil || head != (Head{Version: 1, Epoch: root.Epoch}) {
		t.Errorf("the head of c: %v, %v, that of a: %v", head, err, root)
	}
	if found, err := s.Items(ctx, "t", []string{"in_a", "out_c", "no"}); err != nil || len(found) != 2 {
		t.Errorf("items: %v, %v", found, err)
	}

	for _, other := range []context.Context{t.Context(), WithLocal(t.Context(), NewLocal(1<<20, room.take))} {
		for _, id := range []string{"b", "y"} {
			if _, err := s.Chain(other, "t", id); !errors.Is(err, ErrNotFound) {
				t.Errorf("another connection: %v", err)
			}
		}
	}
	if err := s.Put(Locally(ctx), "t", localResponseOf("b", "a")); !errors.Is(err, ErrConflict) {
		t.Errorf("the same again: %v", err)
	}

	// What is gone in the store is gone for what continues it.
	if err := s.Delete(ctx, "t", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(ctx, "t", "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the head after its root is deleted: %v", err)
	}

	l.Close()
	if err := s.Put(Locally(ctx), "t", localResponseOf("late", "")); err != nil || room.taken != 0 {
		t.Errorf("after the end: %v, %d bytes are taken", err, room.taken)
	}
	if err := s.Put(Locally(t.Context()), "t", localResponseOf("b", "")); err == nil {
		t.Error("a response for a connection was written without one")
	}
}

// What was unused for longest makes room, but not what something else continues.
func TestLocalForgets(t *testing.T) {
	t.Parallel()
	size := localBytes(localResponseOf("00", ""))
	room := &localRoom{most: 4 * size}
	l := NewLocal(3*size, room.take)
	for i := range 10 {
		// 00 is continued by 01, the others are alone.
		previous := ""
		if i == 1 {
			previous = "00"
		}
		if err := l.put(localResponseOf(fmt.Sprintf("%02d", i), previous)); err != nil {
			t.Fatal(err)
		}
		l.chain("01")
	}
	for id, want := range map[string]string{"01": "00 01", "08": "", "09": "09"} {
		if got := idsOf(l.chain(id)); got != want {
			t.Errorf("the chain of %s is %q, want %q", id, got, want)
		}
	}
	if room.taken != 3*size {
		t.Errorf("%d bytes are taken for %d", room.taken, 3*size)
	}
	if err := l.put(&Response{ID: "large", Object: make([]byte, 3*size)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a response larger than all: %v", err)
	}

	// A chain that fills it cannot go on; nothing is lost by the try.
	_ = l.put(localResponseOf("02", "01"))
	if err := l.put(localResponseOf("03", "02")); !errors.Is(err, ErrTooLarge) || idsOf(l.chain("02")) != "00 01 02" {
		t.Errorf("a long chain: %v, %q", err, idsOf(l.chain("02")))
	}
	room.most = 0
	if err := l.put(localResponseOf("04", "")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("without room: %v", err)
	}
	l.Close()
	if room.taken != 0 {
		t.Errorf("%d bytes stay taken", room.taken)
	}
}

// What is withdrawn is not found, but what continues it has it.
func TestLocalWithdraws(t *testing.T) {
	t.Parallel()
	size := localBytes(localResponseOf("00", ""))
	room := &localRoom{most: 4 * size}
	l := NewLocal(4*size, room.take)
	for _, r := range []*Response{localResponseOf("00", ""), localResponseOf("01", "00"), localResponseOf("02", "01")} {
		if err := l.put(r); err != nil {
			t.Fatal(err)
		}
	}

	l.Withdraw("none")
	l.Withdraw("01")
	if got := idsOf(l.chain("01")); got != "" || room.taken != 3*size {
		t.Errorf("the chain of what is withdrawn is %q, %d bytes are taken", got, room.taken)
	}
	if got := idsOf(l.chain("02")); got != "00 01 02" {
		t.Errorf("the chain of what continues it is %q", got)
	}

	// Without a successor it is forgotten at once.
	l.Withdraw("02")
	l.Withdraw("01")
	if got := idsOf(l.chain("00")); got != "00" || room.taken != size {
		t.Errorf("the chain of the first is %q, %d bytes are taken", got, room.taken)
	}

	l.Close()
	l.Withdraw("00")
	if room.taken != 0 {
		t.Errorf("%d bytes stay taken", room.taken)
	}
}

// What is kept counts as all of its memory: the room that items have beyond their JSON, and what many
// small ones take beside it.
func TestLocalCountsItsMemory(t *testing.T) {
	t.Parallel()
	r := localResponseOf("a", "")
	r.Object = append(make([]byte, 0, 1<<10), r.Object...)
	want := cap(r.Object)
	for i := range 100 {
		item := Item{ID: fmt.Sprintf("fc_%040d", i), JSON: append(make([]byte, 0, 100*(i%3)), `{}`...)}
		r.Input, r.Output = append(r.Input, item), append(r.Output, item)
		want += 2 * (int(unsafe.Sizeof(item)) + len(item.ID) + cap(item.JSON))
	}

	room := &localRoom{most: 1 << 20}
	l := NewLocal(1<<20, room.take)
	if err := l.put(r); err != nil || room.taken < want {
		t.Errorf("%d bytes are taken for %d, error %v", room.taken, want, err)
	}
	if l.Close(); room.taken != 0 {
		t.Errorf("%d bytes are not returned", room.taken)
	}
}

// Others take the room of what is kept: what was unused for longest is forgotten, the end of a chain
// before its beginning, and no more than is needed. What is whole stays whole.
func TestLocalGivesUp(t *testing.T) {
	t.Parallel()
	size := localBytes(localResponseOf("00", ""))
	room := &localRoom{most: 10 * size}
	l := NewLocal(10*size, room.take)
	for id, previous := range map[string]string{"00": "", "10": ""} {
		for i := range 3 {
			next := fmt.Sprintf("%.1s%d", id, i)
			if err := l.put(localResponseOf(next, previous)); err != nil {
				t.Fatal(err)
			}
			previous = next
		}
	}
	l.chain("02")

	for _, step := range []struct {
		bytes int
		left  string // the ends of chains that are found
	}{
		{size, "02 11"},
		{1, "02 10"}, // a response is forgotten as a whole, and the rest of it returned
		{size + 1, "01"},
		{size, "00"},
	} {
		room.taken -= step.bytes
		l.GiveUp(step.bytes)

		var left []string
		for _, ids := range [][]string{{"02", "01", "00"}, {"12", "11", "10"}} {
			for _, id := range ids {
				if chain := l.chain(id); len(chain) > 0 {
					left = append(left, id)
					break
				}
			}
		}
		if got := strings.Join(left, " "); got != step.left || room.taken != len(l.responses)*size || l.recent.Len() != len(l.responses) {
			t.Errorf("after %d bytes: %s, want %s; %d are taken for %d", step.bytes, got, step.left, room.taken, len(l.responses)*size)
		}
		// The chain that is to stay is used last.
		l.chain("02")
		l.chain("01")
	}

	// More than there is.
	room.taken -= size
	l.GiveUp(3 * size)
	if len(l.responses) != 0 || room.taken != 0 {
		t.Errorf("%d responses are left, with %d bytes", len(l.responses), room.taken)
	}
}
