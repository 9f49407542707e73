package stored

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		sse, end := f.take([]store.Batch{{First: 0, Last: 1, SSE: events("ab")}, {First: 2, Last: 4, SSE: events("cde"), End: true}})
		if diff := cmp.Diff(c.want, strings.ReplaceAll(string(sse), "\n", "")); diff != "" || !end || f.after != c.last {
			t.Errorf("after %d: end %t, last %d\n%s", c.after, end, f.after, diff)
		}
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
