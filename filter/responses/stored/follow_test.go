package stored

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// TestTake shows that a follower skips the events of a batch that it has returned.
func TestTake(t *testing.T) {
	t.Parallel()
	events := func(names string) []byte {
		return []byte(strings.Join(strings.Split(names, ""), "\n\n") + "\n\n")
	}
	for _, c := range []struct {
		after int
		want  string
		last  int
	}{
		{-1, "abcde", 4}, {0, "bcde", 4}, {1, "cde", 4}, {2, "de", 4}, {3, "e", 4}, {4, "", 4}, {7, "", 7},
	} {
		f := &Follower{after: c.after}
		batches := []store.Batch{{First: 0, Last: 1, SSE: events("ab")}, {First: 2, Last: 4, SSE: events("cde"), End: true}}
		full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "")
		if _, _, err := f.take(batches, func(int) *apierror.Error { return full }); err != full || f.after != c.after {
			t.Errorf("after %d: %v, last %d where the budget is full", c.after, err, f.after)
		}
		sse, end, err := f.take(batches, func(int) *apierror.Error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, strings.ReplaceAll(string(sse), "\n", "")); diff != "" || !end || f.after != c.last {
			t.Errorf("after %d: end %t, last %d\n%s", c.after, end, f.after, diff)
		}
	}
}

// TestFollowWaitsForTheLastEvents shows that a follower takes the last events from the
// process that made the response, which stores them after the response. Only if they do
// not come it ends the stream itself.
func TestFollowWaitsForTheLastEvents(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"the process stores them late": true, "the process has died": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, TextBytes: 1 << 20, TextTTL: time.Hour, Now: time.Now})
				r := &store.Response{ID: "r", Version: 1, Live: true, Owner: "me", Lease: time.Minute, Object: []byte(`{"id":"r","status":"in_progress"}`)}
				must(t, m.Put(t.Context(), "t", r))
				must(t, m.Append(t.Context(), "t", "r", "me", store.Batch{First: 0, Last: 0, SSE: []byte("delta\n\n")}))
				f := NewFollower(m, store.Key{Tenant: "t", ID: "r"})
				wantNext(t, f, "delta\n\n", false)
				ended := *r
				ended.Version, ended.Live, ended.Owner, ended.Object = 2, false, "", []byte(`{"id":"r","status":"completed"}`)
				must(t, m.Put(t.Context(), "t", &ended))
				late := lateReads - 1
				if written {
					late = 3
				}
				for range late {
					wantNext(t, f, "", false)
				}
				want := "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1,"
				if written {
					want = "done\n\ncompleted\n\n"
					must(t, m.Append(t.Context(), "t", "r", "me", store.Batch{First: 1, Last: 2, SSE: []byte(want), End: true}))
				}
				wantNext(t, f, want, true)
			})
		})
	}
}

// gets counts the reads of whole responses.
type gets struct {
	store.Store
	n int
}

func (g *gets) Get(ctx context.Context, tenant, id string) (*store.Response, error) {
	g.n++
	return g.Store.Get(ctx, tenant, id)
}

// TestFollowReadsNoLiveResponse follows a response that is being made, until its process
// has died: only then it is read.
func TestFollowReadsNoLiveResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &gets{Store: store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, TextBytes: 1 << 20, TextTTL: time.Hour, Now: time.Now})}
		r := &store.Response{ID: "r", Version: 1, Live: true, Owner: "me", Lease: time.Minute, Object: []byte(`{"id":"r","status":"in_progress"}`)}
		must(t, m.Put(t.Context(), "t", r))
		f := NewFollower(m, store.Key{Tenant: "t", ID: "r"})
		for range 30 {
			wantNext(t, f, "", false)
		}
		if m.n != 0 {
			t.Errorf("a live response is read %d times", m.n)
		}
		time.Sleep(time.Minute)
		wantNext(t, f, "event: response.failed", true)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantNext checks how the next events begin.
func wantNext(t *testing.T, f *Follower, want string, wantEnd bool) {
	t.Helper()
	sse, end, err := f.Next(t.Context(), func(int) *apierror.Error { return nil })
	if err != nil || end != wantEnd || !strings.HasPrefix(string(sse), want) || want == "" && len(sse) > 0 {
		t.Fatalf("%q, end %t, %v; want %q, end %t", sse, end, err, want, wantEnd)
	}
}

// TestItemsDone shows that the items of a stream are in the order of the output, not
// of their ends.
func TestItemsDone(t *testing.T) {
	t.Parallel()
	done := func(index, id string) string {
		return "event: response.output_item.done\ndata: {\"output_index\":" + index + ",\"item\":{\"id\":\"" + id + "\"}}\n\n"
	}
	batches := []store.Batch{{SSE: []byte(done("2", "c") + "event: other\ndata: {}\n\n" + done("0", "a"))}, {SSE: []byte(done("1", "b"))}}
	want := []store.Item{{ID: "a", JSON: []byte(`{"id":"a"}`)}, {ID: "b", JSON: []byte(`{"id":"b"}`)}, {ID: "c", JSON: []byte(`{"id":"c"}`)}}
	if diff := cmp.Diff(want, itemsDone(batches)); diff != "" {
		t.Error(diff)
	}
}

// TestFullStore shows what is said where a store has no room for the end of a response or of its
// stream, or has dropped the response: it answers, and to try again would help nobody.
func TestFullStore(t *testing.T) {
	t.Parallel()
	object := []byte(`{"id":"r","status":"in_progress","background":true,"text":"` + strings.Repeat("x", 1500) + `"}`)
	for name, c := range map[string]struct {
		live    bool
		dropped bool
		status  int
		says    string
	}{
		"no room for the end":        {true, false, http.StatusRequestEntityTooLarge, "responses.store_bytes"},
		"no room for the last event": {false, false, http.StatusRequestEntityTooLarge, "responses.store_bytes"},
		"the response was dropped":   {false, true, http.StatusNotFound, "is not stored (any more)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			m := store.NewMemory(store.Options{ResponseBytes: 2000, ResponseTTL: time.Hour, Now: func() time.Time { return now }})
			must(t, m.Put(t.Context(), "t", &store.Response{ID: "r", Version: 1, Live: c.live, Owner: "me", Object: object}))
			now = now.Add(time.Second) // the lease has lapsed

			var s store.Store = m
			if c.dropped {
				s = &dropping{m}
			}
			f := NewFollower(s, store.Key{Tenant: "t", ID: "r"})
			f.late = lateReads
			_, _, err := f.Next(t.Context(), func(int) *apierror.Error { return nil })
			if err == nil || err.Status != c.status || !strings.Contains(err.Message, c.says) {
				t.Errorf("%+v", err)
			}
		})
	}
}

// dropping is a store that drops a response before an event is added to its stream.
type dropping struct{ store.Store }

func (s *dropping) Append(ctx context.Context, tenant, id, owner string, b store.Batch) error {
	if err := s.Delete(ctx, tenant, id); err != nil {
		return err
	}
	return s.Store.Append(ctx, tenant, id, owner, b)
}
