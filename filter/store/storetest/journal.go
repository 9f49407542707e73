package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

func batch(first, last int, end bool) store.Batch {
	return store.Batch{First: first, Last: last, SSE: []byte("data: " + strconv.Itoa(first) + "\n\n"), End: end}
}

func (s *tester) events(tenant, id string, after int) []store.Batch {
	s.Helper()
	batches, err := s.Events(s.ctx, tenant, id, after, 0)
	s.must(err)
	return batches
}

func testJournal(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", live("r", "me", time.Hour))
	s.wantEqual("Events of an unknown id", s.events("a", "none", -1), []store.Batch{})
	s.wantEqual("Events of a new response", s.events("a", "r", -1), []store.Batch{})
	all := []store.Batch{batch(0, 0, false), batch(1, 4, false), batch(5, 9, false), batch(10, 10, false)}
	for _, b := range all {
		s.must(s.Append(s.ctx, "a", "r", "me", b))
	}
	for after, want := range map[int][]store.Batch{
		-1: all, 0: all[1:], 1: all[1:], 3: all[1:], 4: all[2:], 8: all[2:], 9: all[3:], 10: nil, 99: nil,
	} {
		s.wantEqual("Events after "+strconv.Itoa(after), s.events("a", "r", after), want)
	}
	s.wantError("Append by another", s.Append(s.ctx, "a", "r", "you", batch(11, 11, false)), store.ErrConflict)
	s.wantError("Append of the end by another", s.Append(s.ctx, "a", "r", "", batch(11, 11, true)), store.ErrConflict)
	s.wantError("Append to an unknown id", s.Append(s.ctx, "a", "none", "me", batch(0, 0, false)), store.ErrNotFound)
	s.wantError("Append of a batch twice", s.Append(s.ctx, "a", "r", "me", batch(10, 10, false)), store.ErrConflict)
	s.wantEqual("Events", s.events("a", "r", 9), all[3:])

	s.must(s.Delete(s.ctx, "a", "r"))
	s.wantEqual("Events after Delete", s.events("a", "r", -1), []store.Batch{})
	s.wantError("Append after Delete", s.Append(s.ctx, "a", "r", "me", batch(11, 11, false)), store.ErrNotFound)
	s.put("a", live("r", "me", time.Hour))
	s.wantEqual("Events of a new response with that id", s.events("a", "r", -1), []store.Batch{})
}

func testJournalEnd(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", live("r", "me", time.Hour))
	s.must(s.Append(s.ctx, "a", "r", "me", batch(0, 3, false)))
	ended := next(response("r", ""))
	s.put("a", ended)
	s.wantEqual(
		"Events after the response was written again", s.events("a", "r", -1),
		[]store.Batch{batch(0, 3, false)},
	)
	s.wantError(
		"Append to a response that has ended", s.Append(s.ctx, "a", "r", "me", batch(4, 4, false)),
		store.ErrConflict,
	)
	s.must(s.Append(s.ctx, "a", "r", "another", batch(4, 4, true)))
	s.wantError("Append of a second end", s.Append(s.ctx, "a", "r", "another", batch(5, 5, true)), store.ErrConflict)
	s.wantEqual("Events with the end", s.events("a", "r", 3), []store.Batch{batch(4, 4, true)})

	s.put("a", live("q", "me", time.Hour))
	s.must(s.Append(s.ctx, "a", "q", "me", batch(0, 0, true)))
	s.wantError("Append after the end", s.Append(s.ctx, "a", "q", "me", batch(1, 1, false)), store.ErrConflict)
}

// testJournalPages checks that Events returns a long stream in pages.
func testJournalPages(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", live("r", "me", time.Hour))
	const mebibyte = 1 << 20
	var all []store.Batch
	first := 0
	add := func(sizes ...int) {
		for i, size := range sizes {
			b := store.Batch{First: first, Last: first + i%3, SSE: bytes.Repeat([]byte("x"), size)}
			s.must(s.Append(s.ctx, "a", "r", "me", b))
			all, first = append(all, b), b.Last+1
		}
	}
	// Pages end within and between the batches that a store reads at once.
	add(slices.Repeat([]int{30_000}, 60)...)
	add(3*mebibyte, 1, mebibyte-1, 1, mebibyte, mebibyte+1, 0, 0, 1)

	var got []store.Batch
	pages, largest, after := 0, 0, -1
	for page := s.events("a", "r", after); len(page) > 0; page = s.events("a", "r", after) {
		size := 0
		for _, b := range page {
			size += len(b.SSE)
		}
		pages++
		if len(page) > 1 {
			largest = max(largest, size)
		}
		got = append(got, page...)
		after = page[len(page)-1].Last
	}
	if diff := cmp.Diff(all, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("all pages (-want +got):\n%.500s", diff)
	}
	if largest > mebibyte+mebibyte/8 || pages > len(all)/4 {
		t.Errorf("%d pages for %d batches, one has %d bytes", pages, len(all), largest)
	}
	// A page starts with the batch that contains the next event.
	within := s.events("a", "r", all[5].Last-1)
	s.wantEqual("first batch after an event within it", within[0].First, all[5].First)
	page, err := s.Events(s.ctx, "a", "r", -1, patience)
	s.must(err)
	s.wantEqual("batches of a call that would wait", len(page), len(s.events("a", "r", -1)))
}

func testJournalWaits(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", live("r", "me", time.Hour), live("quiet", "me", time.Hour))
	const followers = 5
	type result struct {
		batches []store.Batch
		err     error
	}
	results := make(chan result, followers)
	for i := range followers {
		id := "r"
		if i == 0 {
			id = "later"
		}
		go func() {
			batches, err := s.Events(s.ctx, "a", id, -1, patience)
			results <- result{batches, err}
		}()
	}
	// So that most followers have to wait; the test does not depend on it.
	time.Sleep(20 * time.Millisecond)
	s.must(s.Append(s.ctx, "a", "r", "me", batch(0, 2, false)))
	s.put("a", live("later", "me", time.Hour))
	s.must(s.Append(s.ctx, "a", "later", "me", batch(0, 2, false)))
	for range followers {
		r := <-results
		s.must(r.err)
		s.wantEqual("Events after waiting", r.batches, []store.Batch{batch(0, 2, false)})
	}
	batches, err := s.Events(s.ctx, "a", "quiet", -1, 30*time.Millisecond)
	s.must(err)
	s.wantEqual("Events after a timeout", batches, []store.Batch{})

	ctx, cancel := context.WithCancel(s.ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := s.Events(ctx, "a", "quiet", -1, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Events with a canceled context: %v", err)
	}
}

// testJournalConcurrent follows a stream several times while it is written, and
// ends it several times.
func testJournalConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", live("r", "me", time.Hour))
	const followers, batches = 4, 60
	got := make(chan int, followers)
	for range followers {
		go func() {
			next := 0
			for {
				found, err := s.Events(s.ctx, "a", "r", next-1, patience)
				if err != nil || len(found) == 0 {
					t.Errorf("Events after %d: %d batches, %v", next-1, len(found), err)
					break
				}
				for _, b := range found {
					if b.First != next {
						t.Errorf("batch %d after %d", b.First, next-1)
					}
					next = b.Last + 1
				}
				if found[len(found)-1].End {
					break
				}
			}
			got <- next
		}()
	}

	for i := range batches {
		s.must(s.Append(s.ctx, "a", "r", "me", batch(2*i, 2*i+1, false)))
	}

	s.put("a", next(response("r", "")))
	succeeded := s.concurrently(
		4, func(int) error { return s.Append(s.ctx, "a", "r", "", batch(2*batches, 2*batches, true)) },
	)

	if len(succeeded) != 1 {
		t.Errorf("%d ends", len(succeeded))
	}

	for range followers {
		if n := <-got; n != 2*batches+1 {
			t.Errorf("%d of %d events", n, 2*batches+1)
		}
	}
}
